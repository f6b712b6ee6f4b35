# shellcheck shell=bash
# Part of run.sh: kernels alone.

# contract_tests FILTER PROGRAM…: runs tests, under compute-sanitizer's $tool if it is set
contract_tests() {
  local filter=$1 program log name status failed=0
  shift
  for program in "$@"; do
    name=${tool:+$tool-}$program
    log=$folder/$name.log
    status=0
    # The sanitizer must run the program itself, not the bundle's launcher, which is statically linked.
    [[ -z ${tool:-} ]] || program=$(in_bundles "libexec/$program")
    within 240 ${tool:+"$sanitizer" --tool "$tool" --error-exitcode 1} "$program" --gtest_filter="$filter" \
      --gtest_brief=1 >"$log" 2>&1 || status=$?
    if ((status == 0)); then
      grep -E 'PASSED|SKIPPED|ERROR SUMMARY' "$log" | sed "s/^/$name: /"
      record "$name" true
    else
      cat "$log"
      record "$name" false
      problem "$name: $(why $status 240 "$log")"
      failed=1
    fi
  done
  return $failed
}

every_contract_test() {
  in_bundles 'bin/*_contract_test' | sed 's|.*/||' | sort -u
}

part_kernels() {
  # shellcheck disable=SC2046
  contract_tests '*/cuda:*_on_cuda' $(every_contract_test)
}

part_sanitizer() {
  local sanitizer tool failed=0
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || {
    skip "no compute-sanitizer in PATH or /usr/local/cuda/bin"
    return
  }
  for tool in memcheck racecheck synccheck initcheck; do
    # Without convolutions: they are NVIDIA's kernels, of which dozens are tried per test.
    # shellcheck disable=SC2046
    contract_tests '*/cuda' $(every_contract_test | grep -v '^convolution_') || failed=1
  done
  return $failed
}

part_bandwidth() {
  local log=$folder/memory_bench.log status=0
  within 50 memory_bench --device=cuda --json >"$folder/memory_bench.json" 2>"$log" || status=$?
  if ((status > 1)) || [[ ! -s $folder/memory_bench.json ]]; then
    cat "$log"
    problem "memory_bench: $(why $status 50 "$log")"
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
