#!/usr/bin/env bash
# Runs a unittest module with the system's Python: python_test.sh MODULE.py
exec /usr/bin/python3 -B tests/support/run_unittest.py "$@"
