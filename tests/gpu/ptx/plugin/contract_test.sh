#!/usr/bin/env bash
# Runs a contract test's cases on the PTX interpreter: contract_test.sh PROGRAM FILTER
set -euo pipefail
exec "$1" --gtest_filter="$2"
