#!/usr/bin/env bash
# Builds everything and runs every test; the last line is `N passed, N failed[, N skipped]`.
#
#   tests/run.sh [--full | --sanitize | --fuzz SECONDS] [BAZEL TARGET…]
#
# --full also runs the long tests (tagged `full`: full training, accuracy, many repetitions). Among them are programs of
# the previous commit together with present ones; they are built first, or taken from MUSTER_PREVIOUS (a bazel-bin).
# --sanitize runs only the C++ unit tests: all under AddressSanitizer and UndefinedBehaviorSanitizer, those of the
# coordinator's core, the collectives and the thread pool also under ThreadSanitizer.
# --fuzz runs each target of //tests/fuzz under libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer for SECONDS and
# prints what it covers. Inputs that crash and inputs that cover more are kept in ~/.cache/muster-fuzz.
set -uo pipefail
cd "$(dirname "$0")/.."

sanitize() {
  deploy/install_dependencies.sh --with-tests || return 1
  local config query tests status=0
  : > bazel-events.json
  for config in asan tsan; do
    query="kind(cc_test, set(${*:-//...}))"
    [[ $config == asan ]] || query="$query ^ (//coordinator/core/... + //collectives/... + //kernels:thread_pool_test)"
    mapfile -t tests < <(bazel query --noshow_progress "$query")
    [[ ${#tests[@]} -gt 0 ]] || continue
    bazel test --config="$config" --test_tag_filters=-full --nocache_test_results --keep_going --test_summary=short \
      --build_event_json_file="bazel-events-$config.json" "${tests[@]}" || status=$?
    cat "bazel-events-$config.json" >> bazel-events.json
  done
  python3 tests/count_results.py bazel-events.json || return 1
  return "$status"
}

# Limits of one input: no target handles more than a few KiB, so a parser that needs more trusts a size in its input.
fuzz_limits=(-max_len=8192 -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=512)

fuzz() {
  local seconds=${1:-} folder=$HOME/.cache/muster-fuzz programs target targets name kept passed=0 failed=0
  shift
  [[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "--fuzz: give a number of seconds per target, not '$seconds'" >&2; return 2; }
  deploy/install_dependencies.sh --with-tests || return 1
  mapfile -t targets < <(bazel query --noshow_progress "kind(cc_test, //tests/fuzz:all) ^ set(${*:-//tests/fuzz:all})")
  [[ ${#targets[@]} -gt 0 ]] || { echo "no fuzz targets among $*" >&2; return 2; }
  bazel build --config=fuzz "${targets[@]}" || return 1
  programs=$(bazel info --config=fuzz bazel-bin)/tests/fuzz || return 1
  for target in "${targets[@]}"; do
    name=${target#//tests/fuzz:}
    kept=$folder/$name
    mkdir -p "$kept/inputs" "$kept/crashes"
    if "$programs/$name" "${fuzz_limits[@]}" -max_total_time="$seconds" -artifact_prefix="$kept/crashes/" \
      "$kept/inputs" "tests/fuzz/corpus/$name" > "$kept/log" 2>&1; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      grep -aE 'SUMMARY|violated|Test unit written|runtime error' "$kept/log" | sed "s|^|$name: |"
    fi
    # The last status line: "#65536 pulse  cov: 1234 ft: 5678 corp: 90/8Kb exec/s: 1000 rss: 60Mb".
    sed -nE 's|^#([0-9]+).* cov: ([0-9]+) ft: ([0-9]+).*|\1 \2 \3|p' "$kept/log" | tail -1 |
      while read -r inputs edges features; do echo "$name: $edges edges, $features features, $inputs inputs"; done
  done
  echo "$passed passed, $failed failed"
  [[ $failed -eq 0 ]]
}

if [[ ${1:-} == --sanitize ]]; then
  sanitize "${@:2}"
  exit
fi
if [[ ${1:-} == --fuzz ]]; then
  fuzz "${@:2}"
  exit
fi

# Builds the daemons of the previous commit and prints their bazel-bin.
build_previous() {
  local tree=${TMPDIR:-/tmp}/muster-previous
  git worktree remove --force "$tree" 2>/dev/null
  git worktree add --force --detach "$tree" HEAD~1 >&2 || return 1
  (cd "$tree" && bazel/build.sh //coordinator:muster-coordinator //worker:muster-worker >&2) || return 1
  readlink -f "$tree/bazel-bin"
}

# The tag is not `long`: Bazel's filter takes that for the timeout of large tests as well.
filter=-full
test_env=()
if [[ ${1:-} == --full ]]; then
  filter=
  shift
  MUSTER_PREVIOUS=${MUSTER_PREVIOUS:-$(build_previous)} || { echo "the previous commit does not build" >&2; exit 1; }
  test_env=(--test_env="MUSTER_PREVIOUS=$MUSTER_PREVIOUS")
fi
# With explicit targets, the quickstart is skipped.
targets=("$@")
quickstart=$(($# == 0))
[[ ${#targets[@]} -gt 0 ]] || targets=(//...)

deploy/install_dependencies.sh --with-tests || exit 1
tests/support/setup_venv.sh || exit 1
# Built first and separately, so that compiler errors are not lost among test output and no test
# waits for a compiler.
bazel/build.sh "${targets[@]}" || { echo "the build failed" >&2; exit 1; }

# Results of an earlier run must not be reused. Tests that start a cluster mostly wait, so two run per core, except for
# those that measure time, which are tagged `exclusive`.
jobs=$((2 * $(nproc)))
bazel test --test_tag_filters="$filter" "${test_env[@]}" --nocache_test_results --build_tests_only --test_summary=short \
  --jobs="$jobs" --local_test_jobs="$jobs" --local_cpu_resources="$jobs" --build_event_json_file=bazel-events.json "${targets[@]}"
bazel_status=$?

# The quickstart of the README. Outside Bazel, because it calls Bazel.
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
