# shellcheck shell=bash
# Part of run.sh: kernels alone.

# Those of part contracts; the tests of all other kernels are in part kernels.
readonly FIRST_KERNELS="batch_norm pooling cast depthwise_convolution image_transform convolution"

# contract_test FILTER PROGRAM: runs a program's tests, under compute-sanitizer's $tool if it is set
contract_test() {
  local filter=$1 program=$2 name=${tool:+$tool-}$2 status=0 passed
  local log=$folder/$name.log
  # The sanitizer must run the program itself, not the bundle's launcher, which is statically linked.
  [[ -z ${tool:-} ]] || program=$(in_bundles "libexec/$program")
  within ${tool:+"$sanitizer" --tool "$tool" --error-exitcode 1} "$program" --gtest_filter="$filter" \
    >"$log" 2>&1 || status=$?
  passed=$(grep -c '^\[       OK' "$log")
  if ((status == 0)); then
    grep -E 'PASSED|SKIPPED|ERROR SUMMARY' "$log" | sed "s/^/$name: /"
    record "$name" true
  else
    grep -vE '^\[( RUN |       OK|-----)' "$log"
    record "$name" false
    problem "$name: $(why $status "$log") ($passed tests passed)"
  fi
}

# contract_tests FILTER PROGRAM…: runs the programs at the same time, because their time is that of the reference on one core
contract_tests() {
  local filter=$1 program process running=() failed=0
  shift
  for program in "$@"; do
    contract_test "$filter" "$program" &
    running+=($!)
  done
  for process in "${running[@]}"; do wait "$process" || failed=1; done
  return $failed
}

# other_contract_tests → the programs of kernels that are not in FIRST_KERNELS
other_contract_tests() {
  # shellcheck disable=SC2086
  in_bundles 'bin/*_contract_test' | sed 's|.*/||' | sort -u | grep -vxF "$(printf '%s_contract_test\n' $FIRST_KERNELS)"
}

part_contracts() {
  # shellcheck disable=SC2086
  contract_tests '*/cuda:*_on_cuda' $(printf '%s_contract_test ' $FIRST_KERNELS)
}

part_kernels() {
  # shellcheck disable=SC2046
  contract_tests '*/cuda:*_on_cuda' $(other_contract_tests)
}

# Sets $sanitizer.
find_sanitizer() {
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) ||
    skip "no compute-sanitizer in PATH or /usr/local/cuda/bin"
}

part_memory() {
  local sanitizer tool running=() process failed=0
  find_sanitizer || return
  for tool in initcheck memcheck; do
    contract_tests '*/cuda' batch_norm_contract_test &
    running+=($!)
  done
  for process in "${running[@]}"; do wait "$process" || failed=1; done
  return $failed
}

part_sanitizer() {
  local sanitizer tool failed=0
  find_sanitizer || return
  for tool in memcheck racecheck synccheck initcheck; do
    # Without convolutions: they are NVIDIA's kernels, of which dozens are tried per test.
    # shellcheck disable=SC2046
    contract_tests '*/cuda' $({ other_contract_tests; printf '%s_contract_test\n' $FIRST_KERNELS; } | grep -v '^convolution_') ||
      failed=1
  done
  return $failed
}

part_bandwidth() {
  local log=$folder/memory_bench.log status=0
  within memory_bench --device=cuda --json >"$folder/memory_bench.json" 2>"$log" || status=$?
  if ((status > 1)) || [[ ! -s $folder/memory_bench.json ]]; then
    cat "$log"
    problem "memory_bench: $(why $status "$log")"
    return
  fi
  record bandwidth "$(<"$folder/memory_bench.json")"
  paste <(sed -n 's/.*"name": "\(.*\)".*/\1/p' "$folder/memory_bench.json") \
    <(sed -n 's/.*"share_of_copy": \([0-9.]*\).*/\1/p' "$folder/memory_bench.json") \
    <(sed -n 's/.*"target": \([0-9.]*\).*/\1/p' "$folder/memory_bench.json") | awk -F '\t' '
      { printf "%-52s %.2f of copy%s\n", $1, $2, ($3 > 0 ? sprintf(", target %.2f%s", $3, ($2 < $3 ? ": missed" : "")) : "") }' |
    tee "$folder/shares"
  ((status == 0)) || problem "$(grep -c ': missed' "$folder/shares") kernels miss their targets"
}
