#!/usr/bin/env bash
# Runs a contract test's cases on the PTX interpreter: contract_test.sh PROGRAM FILTER
# Fails if the filter matches no case.
set -euo pipefail
log=$TEST_TMPDIR/log
"$1" --gtest_filter="$2" | tee "$log"
grep -q '^\[=*\] Running [1-9]' "$log" || { echo "no case of $1 matches $2"; exit 1; }
