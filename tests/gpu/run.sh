#!/usr/bin/env bash
# Tests Muster on a machine with an NVIDIA GPU; no build tree is needed.
#
#   tests/gpu/run.sh [--quick | --part NAME]… [--out DIRECTORY] [BUNDLE…]
#
# BUNDLE: muster.tar.xz and muster-gpu-tests.tar.xz, or folders to which they were unpacked; default: those of bazel-bin,
# built by `bazel build //deploy:bundle //tests/gpu:bundle`. Requires Bash, NVIDIA's driver, cuDNN, cuBLASLt and libz; the
# part nccl also requires NCCL. Libraries are searched in $MUSTER_CUDA_LIBRARY_PATH, in the packages of $PYTHON (python3),
# where the dynamic linker looks, and in /usr/local/cuda. If $PYTHON has PyTorch, it is measured for comparison.
#
# Parts, in this order; each can be run alone:
#   quick       the GPU is found, kernels of one kind agree with the reference, small_cnn trains
#   training    losses of small_cnn and resnet18, with a coordinator and a worker, against those of the CPU ($SETS
#               overrides fields of the spec, for example SETS="train.max_steps=10")
#   throughput  images/s of four models, relative to PyTorch ($MODELS selects models, $FORMS the forms of PyTorch: eager
#               (default), or a mode of torch.compile such as default or reduce-overhead)
#   graphs      ResNet-18 with 32 images, with and without CUDA graphs
#   bandwidth   memory-bound kernels, relative to a copy
#   nccl        two ranks on one GPU as if on two hosts, with NCCL: the communicator's contract, a cluster whose training
#               agrees with that of one rank, with data parallelism and as a two-stage pipeline, a killed rank, the
#               bandwidth of all-reduces (up to $ALLREDUCE_MAX, 64MiB); $NCCL_CHECKS selects from by-two, by-two-normed,
#               in-stages, killed and allreduce
#   kernels     every kernel agrees with the reference
#   accuracy    Fashion-MNIST to 93 %, if $FASHION_MNIST is its folder
#   sanitizer   the tests of our own kernels under compute-sanitizer (memcheck, racecheck, synccheck, initcheck), if
#               installed with CUDA
# --quick runs only the part quick. All parts together end within $LIMIT seconds (540); a part for which no time is left is
# skipped. Each part has a time limit of its own, which $PART_SECONDS overrides, for example PART_SECONDS="nccl=60". A part
# continues after a failure, and the next one runs in any case.
#
# Writes results.json, summary.txt, environment.txt and a folder per part with its logs to DIRECTORY (gpu-results), and
# all of it to DIRECTORY.tar.gz. Does not change the GPU's settings.
#
# Exit status: 0 if no part failed, 1 if one failed, 64 for invalid arguments, 66 without bundles, 69 without a GPU or a
# required library, 73 if DIRECTORY cannot be written.
set -uo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
readonly HERE ROOT
readonly LIMIT=${LIMIT:-540}
readonly PYTHON=${PYTHON:-python3}
readonly ALL_PARTS=(quick training throughput graphs bandwidth nccl kernels accuracy sanitizer)
# Time limits in seconds.
declare -A part_seconds=([quick]=90 [training]=180 [throughput]=180 [graphs]=90 [bandwidth]=60 [nccl]=180 [kernels]=300
  [accuracy]=240 [sanitizer]=500)

# shellcheck source=tests/gpu/report.sh
source "$HERE/report.sh"
# shellcheck source=tests/gpu/processes.sh
source "$HERE/processes.sh"
# shellcheck source=tests/gpu/environment.sh
source "$HERE/environment.sh"
# Each of these files defines functions part_NAME, which run in a process of their own with the working directory $work,
# write their logs to $folder and what is to be kept of their programs' directories to $kept, and report by record,
# problem and skip.
# shellcheck source=tests/gpu/kernels.sh
source "$HERE/kernels.sh"
# shellcheck source=tests/gpu/training.sh
source "$HERE/training.sh"
# shellcheck source=tests/gpu/throughput.sh
source "$HERE/throughput.sh"
# shellcheck source=tests/gpu/nccl.sh
source "$HERE/nccl.sh"

parts=()
out=gpu-results
bundles=()
while (($#)); do
  case $1 in
    --quick) parts+=(quick) ;;
    --part) shift; parts+=("${1:-}") ;;
    --out) shift; out=${1:-} ;;
    -h | --help) sed -n '/^# Tests/,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) echo "run.sh: unknown option $1" >&2; exit 64 ;;
    *) bundles+=("$1") ;;
  esac
  shift || break
done
for part in "${parts[@]}"; do
  [[ " ${ALL_PARTS[*]} " == *" $part "* ]] || { echo "run.sh: no part '$part'" >&2; exit 64; }
done
for limit in ${PART_SECONDS:-}; do
  [[ -n ${part_seconds[${limit%%=*}]:-} && ${limit#*=} =~ ^[0-9]+$ ]] || {
    echo "run.sh: PART_SECONDS: '$limit' is not PART=SECONDS" >&2
    exit 64
  }
  part_seconds[${limit%%=*}]=${limit#*=}
done
[[ ${#parts[@]} -gt 0 ]] || parts=("${ALL_PARTS[@]}")
[[ ${#bundles[@]} -gt 0 ]] || bundles=("$ROOT/bazel-bin/deploy/muster.tar.xz" "$ROOT/bazel-bin/tests/gpu/muster-gpu-tests.tar.xz")

mkdir -p "$out" && out=$(cd "$out" && pwd) && work=$(mktemp -d -t muster-gpu.XXXXXX) || exit 73
trap 'end_processes; rm -rf "$work"' EXIT
interrupted=0 # or the exit status after a signal
trap 'interrupted=130' INT
trap 'interrupted=143' TERM
# The directory for temporary files and sockets of all programs.
export TMPDIR=$work
kept=$work/kept

unpack_bundles
find_gpu
find_libraries

# run_part NAME: runs a part within its time limit and reports its state
run_part() {
  local part=$1 begin=$SECONDS left=$((LIMIT - SECONDS)) limit=${part_seconds[$1]} status=0
  folder=$out/$part
  rm -rf "$folder"
  mkdir -p "$folder/found" "$kept"
  if ((interrupted)); then
    report_part "$part" skipped interrupted 0
    return
  fi
  echo "== $part"
  if ((left < 5)); then
    report_part "$part" skipped "no time" 0
    return
  fi
  in_own_process "$folder/log" $((limit < left ? limit : left)) "part_$part" || status=$?
  keep_logs "$kept" "$folder/kept"
  local seconds=$((SECONDS - begin))
  if [[ -s $folder/problems ]]; then
    report_part "$part" failed "$(summary_of "$folder/problems")" "$seconds"
  elif ((interrupted)); then
    report_part "$part" skipped interrupted "$seconds"
  elif ((status == TIMED_OUT && left <= limit)); then
    report_part "$part" skipped "no time" "$seconds"
  elif ((status == TIMED_OUT)); then
    report_part "$part" failed "timed out after $limit s" "$seconds"
  elif ((status == SKIPPED)); then
    report_part "$part" skipped "$(<"$folder/skipped")" "$seconds"
  elif ((status != 0)); then
    report_part "$part" failed "exit status $status" "$seconds"
  else
    report_part "$part" passed "" "$seconds"
  fi
}

for part in "${parts[@]}"; do
  run_part "$part"
done
finish_report
((interrupted == 0)) || exit "$interrupted"
! any_failed
