#!/usr/bin/env bash
# Tests and measures Muster on a machine with NVIDIA GPUs; no build tree is needed.
#
#   tests/gpu/run.sh [--rest | --part NAME]… [--out DIRECTORY] [--listen HOST:PORT] [BUNDLE…]
#   tests/gpu/run.sh --join HOST:PORT TOKEN
#
# BUNDLE: muster-gpu-kit.tar.xz or a folder to which it was unpacked; programs of later bundles replace those of earlier ones.
# Default: the kit that contains this script, or that of bazel-bin, built by `bazel build //tests/gpu:kit`. Requires Bash with
# the usual small programs (coreutils, grep, sed, awk, find, tar, gzip; xz for a packed bundle), NVIDIA's driver, cuDNN,
# cuBLASLt and libz; some parts also require NCCL or compute-sanitizer. Libraries are searched in $MUSTER_CUDA_LIBRARY_PATH,
# in the packages of $PYTHON (python3), where the dynamic linker looks, and in /usr/local/cuda. If $PYTHON has PyTorch and
# torchvision, they are measured for comparison. Without nvidia-smi, clocks are missing in the results.
#
# Parts, in this order; each can be run alone:
#   contracts   the kernels of batch norm, pooling, casts, depthwise convolutions, image transforms and convolutions agree
#               with the reference
#   throughput  images/s of ResNet-50 and MobileNetV2 in bfloat16, three runs each, with clocks, power and temperature, and
#               the time of each kind of operation (explain-plan) beside its prediction
#   links       several GPUs: peer access between them, and the bandwidth of NCCL's all-reduce
#   scaling     several GPUs: two ranks with ddp against one, losses and images/s
#   nodes       several GPUs or --listen: ddp with a coordinator and two workers, losses and images/s
#   torch       PyTorch on the same two models ($FORMS: eager default, of which the second is a mode of torch.compile)
#   jpeg        the same two models, trained from JPEG files of 500x375
#   memory      batch norm under compute-sanitizer: initcheck and memcheck
#   nccl        two ranks on one GPU as if on two hosts: the communicator's contract, a cluster whose training agrees with
#               that of one rank, with data parallelism and as a two-stage pipeline, a killed rank, and all-reduces (up to
#               $ALLREDUCE_MAX, 64MiB); $NCCL_CHECKS selects from by-two, by-two-normed, in-stages, killed and allreduce
#   training    losses of small_cnn and resnet18, with a coordinator and a worker, against those of the CPU
#   graphs      ResNet-18 with 32 images, with and without CUDA graphs
#   bandwidth   memory-bound kernels, relative to a copy
#   models      images/s of ResNet-101 and ResNet-18, and PyTorch's
#   kernels     every other kernel agrees with the reference
#   accuracy    Fashion-MNIST to 93 %, if $FASHION_MNIST is its folder
#   sanitizer   the tests of our own kernels under compute-sanitizer: memcheck, racecheck, synccheck, initcheck
# All parts together end within $LIMIT seconds (560; 840 with several GPUs), which suffice for the parts up to nccl at their
# time limits; the others run in the time that is left. --rest continues an earlier call, whose results are in DIRECTORY or
# DIRECTORY.tar.gz: it runs the parts that had no time. Each part has a time limit of its own, which $PART_SECONDS overrides,
# for example PART_SECONDS="nccl=60". A part continues after a failure, and the next one runs in any case. $SETS overrides
# fields of the specs, for example SETS="train.max_steps=10".
#
# For two machines, --listen starts a coordinator on that address of this one, which must be free and reachable from the other,
# and prints the command for the other: --join, which starts a worker that takes part until the first one is done. The token
# and the data cross the network in plaintext.
#
# Writes results.json, summary.txt, environment.txt and a folder per part with its logs to DIRECTORY (gpu-results), and after
# each part all of its text to DIRECTORY.tar.gz, in which the names of this machine and user, addresses, paths and UUIDs are
# replaced (scrub.sh). Does not change the GPU's settings.
#
# Exit status: 0 if no part failed, 1 if one failed, 64 for invalid arguments, 66 without bundles or results to continue, 69
# without a GPU or a required library, 73 if DIRECTORY cannot be written.
set -uo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
readonly HERE ROOT
readonly PYTHON=${PYTHON:-python3}
readonly ALL_PARTS=(contracts throughput links scaling nodes torch jpeg memory nccl
  training graphs bandwidth models kernels accuracy sanitizer)
# Time limits in seconds. The first line adds up to 540, the second to 260, the third to 550.
declare -A part_seconds=([contracts]=110 [throughput]=130 [torch]=110 [jpeg]=50 [memory]=60 [nccl]=80
  [links]=80 [scaling]=90 [nodes]=90
  [training]=120 [graphs]=50 [bandwidth]=40 [models]=100 [kernels]=90 [accuracy]=60 [sanitizer]=90)

# shellcheck source=tests/gpu/report.sh
source "$HERE/report.sh"
# shellcheck source=tests/gpu/scrub.sh
source "$HERE/scrub.sh"
# shellcheck source=tests/gpu/processes.sh
source "$HERE/processes.sh"
# shellcheck source=tests/gpu/environment.sh
source "$HERE/environment.sh"
# Each of these files defines functions part_NAME, which run in a process of their own with the working directory $work,
# write their logs to $folder and what is to be kept of their programs' directories to $kept, and report by record,
# problem and skip. The part is ended when SECONDS is $part_ends.
# shellcheck source=tests/gpu/kernels.sh
source "$HERE/kernels.sh"
# shellcheck source=tests/gpu/training.sh
source "$HERE/training.sh"
# shellcheck source=tests/gpu/throughput.sh
source "$HERE/throughput.sh"
# shellcheck source=tests/gpu/cluster.sh
source "$HERE/cluster.sh"
# shellcheck source=tests/gpu/nccl.sh
source "$HERE/nccl.sh"
# shellcheck source=tests/gpu/several.sh
source "$HERE/several.sh"

usage_error() { echo "run.sh: $1" >&2; exit 64; }

parts=()
out=gpu-results
bundles=()
rest=0
listen=
join=()
while (($#)); do
  case $1 in
    --rest) rest=1 ;;
    --part) shift; parts+=("${1:-}") ;;
    --out) shift; out=${1:-} ;;
    --listen) shift; listen=${1:-} ;;
    --join) join=("${2:-}" "${3:-}"); shift 2 ;;
    -h | --help) sed -n '/^# Tests/,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) usage_error "unknown option $1" ;;
    *) bundles+=("$1") ;;
  esac
  shift || break
done
for part in "${parts[@]}"; do
  [[ " ${ALL_PARTS[*]} " == *" $part "* ]] || usage_error "no part '$part'"
done
((rest == 0 || ${#parts[@]} == 0)) || usage_error "--rest and --part exclude each other"
for address in "$listen" "${join[0]:-}"; do
  [[ -z $address || $address =~ ^[^:]+:[0-9]+$ ]] || usage_error "'$address' is not HOST:PORT"
done
[[ ${#join[@]} -eq 0 || -n ${join[1]} ]] || usage_error "--join needs HOST:PORT and TOKEN"
for seconds in ${PART_SECONDS:-}; do
  [[ -n ${part_seconds[${seconds%%=*}]:-} && ${seconds#*=} =~ ^[0-9]+$ ]] ||
    usage_error "PART_SECONDS: '$seconds' is not PART=SECONDS"
  part_seconds[${seconds%%=*}]=${seconds#*=}
done
if [[ ${#bundles[@]} -eq 0 ]]; then
  bundles=("$ROOT")
  [[ -x $ROOT/bin/muster ]] || bundles=("$ROOT/bazel-bin/tests/gpu/muster-gpu-kit.tar.xz")
fi

mkdir -p "$out" && out=$(cd "$out" && pwd) && work=$(mktemp -d -t muster-gpu.XXXXXX) || exit 73
trap 'end_processes; rm -rf "$work"' EXIT
interrupted=0 # or the exit status after a signal
trap 'interrupted=130' INT
trap 'interrupted=143' TERM
# The directory for temporary files and sockets of all programs.
export TMPDIR=$work
kept=$work/kept

unpack_bundles
if [[ ${#join[@]} -gt 0 ]]; then
  find_libraries
  join_cluster "${join[@]}"
  exit
fi
if ((rest)); then
  continue_results
  parts=()
  for part in "${ALL_PARTS[@]}"; do had_no_time "$part" && parts+=("$part"); done
else
  for part in "${ALL_PARTS[@]}"; do rm -rf "${out:?}/$part"; done
  [[ ${#parts[@]} -gt 0 ]] || parts=("${ALL_PARTS[@]}")
fi
find_gpu
find_libraries
if [[ -n $listen ]]; then
  join_token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  echo "on the other machine: ${BASH_SOURCE[0]} --join $listen $join_token"
fi
readonly LIMIT=${LIMIT:-$((gpus > 1 ? 840 : 560))}

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
  part_ends=$((SECONDS + limit))
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
  # After each part, for a machine that may be taken away at any time.
  write_report
done
write_report
cat "$out/summary.txt"
echo "$out.tar.gz"
((interrupted == 0)) || exit "$interrupted"
! any_failed
