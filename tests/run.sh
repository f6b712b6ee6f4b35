#!/usr/bin/env bash
# Builds everything and runs every test; ends on `N passed, N failed[, N skipped]`.
#
#   tests/run.sh [--full] [BAZEL TARGET…]
#
# --full adds the long runs (tests tagged `long`: full training, accuracy, many repetitions).
set -uo pipefail
cd "$(dirname "$0")/.."

filter=-long
if [[ ${1:-} == --full ]]; then
  filter=
  shift
fi
# With targets of the caller's own, the quickstart is left out.
targets=("$@")
quickstart=$(($# == 0))
[[ ${#targets[@]} -gt 0 ]] || targets=(//...)

deploy/install_dependencies.sh --with-tests || exit 1
tests/support/setup_venv.sh || exit 1
# Built first and apart, so that a compiler's message is not lost among tests and no test waits for a compiler.
bazel build "${targets[@]}" || { echo "the build failed" >&2; exit 1; }

# A result from an earlier run says nothing about this one. Tests that start a cluster are tagged `exclusive` where
# they measure time.
bazel test --test_tag_filters="$filter" --nocache_test_results --build_tests_only --test_summary=short \
  --build_event_json_file=bazel-events.json "${targets[@]}"
bazel_status=$?

# The README's own promise. Outside Bazel, because it calls Bazel.
more=()
if [[ $quickstart -eq 1 ]]; then
  xml=$(mktemp --suffix=.xml)
  trap 'rm -f "$xml"' EXIT
  XML_OUTPUT_FILE=$xml /usr/bin/python3 -B tests/support/run_unittest.py tests/e2e/quickstart_test.py
  more+=("$xml")
fi

python3 tests/count_results.py bazel-events.json "${more[@]}"
count_status=$?
[[ $bazel_status -eq 0 ]] && exit "$count_status"
exit "$bazel_status"
