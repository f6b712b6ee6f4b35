#!/usr/bin/env bash
# Tests Muster on a machine with an NVIDIA GPU; no build tree is needed.
#
#   tests/gpu/run.sh [--quick | --part NAME]… [--out DIRECTORY] [BUNDLE…]
#
# BUNDLE: muster.tar.xz and muster-gpu-tests.tar.xz, or folders to which they were unpacked;
# default: those of bazel-bin, built by `bazel build //deploy:bundle //tests/gpu:bundle`. Requires
# only Bash and a driver. If $PYTHON (python3) has PyTorch, it is measured for comparison; if it has
# NVIDIA's libraries as packages, those are used.
#
# Parts, in this order; each can be run alone, and all together end within $LIMIT seconds (540). A part continues after a
# failure and reports all failures:
#   quick       the GPU is found, kernels of one kind agree with the reference, small_cnn trains (one minute)
#   kernels     every kernel agrees with the reference
#   sanitizer   the same under compute-sanitizer (memcheck, racecheck, synccheck), if installed with CUDA
#   training    losses of small_cnn and resnet18, with a coordinator and a worker, against those of the CPU ($SETS
#               overrides fields of the spec, for example SETS="train.max_steps=10")
#   bandwidth   memory-bound kernels, relative to a copy
#   graphs      ResNet-18 with 32 images, with and without CUDA graphs
#   throughput  images/s of four models, relative to PyTorch's best form (MODELS and FORMS select)
#   accuracy    Fashion-MNIST to 93 %, if $FASHION_MNIST is its folder
#   nccl        two ranks on one GPU as if on two hosts, with NCCL: the communicator's contract, a cluster whose training
#               agrees with that of one rank, with data parallelism and as a two-stage pipeline, a killed rank, the
#               bandwidth of all-reduces (up to $ALLREDUCE_MAX, 64MiB); $NCCL_CHECKS selects from by-two, by-two-normed,
#               in-stages, killed and allreduce
# --quick runs only the part quick. Writes a log and a JSON file for each part and results.json to DIRECTORY (default:
# gpu-results). Does not change the GPU's settings.
#
# Exit status: 0 if no part failed, 1 if one failed, 64 for invalid arguments, 66 without bundles, 69 without a GPU.
set -uo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
readonly HERE ROOT
readonly ALL_PARTS=(kernels sanitizer training bandwidth graphs nccl throughput accuracy)
readonly PYTHON=${PYTHON:-python3}
parts=()
out="gpu-results"
bundles=()

usage() {
  sed -n '/^# Tries/,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
}

while (($#)); do
  case $1 in
    --quick) parts+=(quick) ;;
    --part) shift; parts+=("${1:-}") ;;
    --out) shift; out=${1:-} ;;
    -h | --help) usage; exit 0 ;;
    -*) echo "run.sh: unknown option $1" >&2; exit 64 ;;
    *) bundles+=("$1") ;;
  esac
  shift || break
done
for part in "${parts[@]}"; do
  [[ " quick ${ALL_PARTS[*]} " == *" $part "* ]] || { echo "run.sh: no part '$part'" >&2; exit 64; }
done
[[ ${#parts[@]} -gt 0 ]] || parts=(quick "${ALL_PARTS[@]}")
[[ ${#bundles[@]} -gt 0 ]] || bundles=("$ROOT/bazel-bin/deploy/muster.tar.xz" "$ROOT/bazel-bin/tests/gpu/muster-gpu-tests.tar.xz")

mkdir -p "$out" || exit 73
out=$(cd "$out" && pwd)
work=$(mktemp -d -t muster-gpu.XXXXXX) || exit 73
trap 'cluster_down; rm -rf "$work"' EXIT
jobs=$out/jobs # finished jobs, as JSON
mkdir -p "$jobs" || exit 73
daemons=()
# Directory for temporary files and sockets of all programs.
export TMPDIR=$work

# Time limit of all parts together in seconds. A part without time left is skipped.
readonly LIMIT=${LIMIT:-540}
remaining() { echo $((LIMIT > SECONDS ? LIMIT - SECONDS : 1)); }
within() { # within SECONDS COMMAND…
  local seconds=$1 left
  shift
  left=$(remaining)
  timeout -k 5 $((seconds < left ? seconds : left)) "$@"
}

# ---- environment

unpack() {
  for bundle in "${bundles[@]}"; do
    if [[ -d $bundle ]]; then
      path=$(cd "$bundle" && pwd)/bin:$path
    elif [[ -f $bundle ]]; then
      tar xf "$bundle" -C "$work" || exit 66
      path=$work/$(basename "$bundle" .tar.xz)/bin:$path
    else
      echo "run.sh: no $bundle; bazel build //deploy:bundle //tests/gpu:bundle builds both" >&2
      exit 66
    fi
  done
  PATH=$path:$PATH
  local program
  for program in muster muster-rank memory_bench make_cifar10; do
    command -v "$program" >/dev/null || { echo "run.sh: no $program in ${bundles[*]}" >&2; exit 66; }
  done
}

# Library folders of NVIDIA's Python packages, if installed.
python_libraries() {
  "$PYTHON" - 2>/dev/null <<'PYTHON'
import glob, os, sysconfig
folders = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
try:
    import torch
    folders.add(os.path.dirname(os.path.dirname(torch.__file__)))
except ImportError:
    pass
print(":".join(sorted(lib for folder in folders for lib in glob.glob(folder + "/nvidia/*/lib"))))
PYTHON
}

has_torch() {
  "$PYTHON" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null
}

# json_value FILE KEY → the first value of the key, a number or text.
json_value() {
  grep -o "\"$2\": *[^,}]*" "$1" | head -n 1 | sed 's/^[^:]*: *//; s/^"//; s/" *$//'
}

json_text() {
  local text=${1//\\/\\\\}
  printf '"%s"' "${text//\"/\\\"}"
}

# ---- parts: each writes $out/PART.json, prints its results, and returns 0, 1 or, with a reason in $skipped, 77

contract_tests() {
  local filter=$1 program failed=0 lines=()
  shift
  for program in "$@"; do
    local log=$work/$program.log path_of=$program
    # Tools must run the program itself, not the bundle's launcher, which is statically linked.
    ((${#under[@]} == 0)) || path_of=$(dirname "$(command -v "$program")")/../libexec/$program
    if within 240 "${under[@]}" "$path_of" --gtest_filter="$filter" --gtest_brief=1 >"$log" 2>&1; then
      grep -E 'PASSED|SKIPPED|ERROR SUMMARY' "$log" | sed "s/^/$program: /"
      lines+=("$(json_text "$program"): true")
    else
      cat "$log"
      lines+=("$(json_text "$program"): false")
      failed=1
    fi
  done
  (IFS=,; printf '{%s}\n' "${lines[*]}") >"$json"
  return $failed
}

every_contract_test() {
  local folder
  for folder in ${path//:/ }; do
    (cd "$folder" 2>/dev/null && compgen -G '*_contract_test')
  done
}

data() {
  [[ -d $work/cifar10 ]] || make_cifar10 "$work/cifar10" 5000 512 || return
}

# train NAME DEVICE [--set FIELD=VALUE]… → $jobs/NAME.json, the finished job
train() {
  local name=$1 device=$2 field
  shift 2
  for field in ${SETS:-}; do set -- "$@" --set "$field"; done
  data || return
  within 90 muster local "$HERE/training.yaml" --name "$name" --set "train.dataset.path=$work/cifar10" \
    --set "resources.device=$device" --losses -o json "$@" >"$jobs/$name.json" || {
    echo "$name failed"
    return 1
  }
}

# A negligible change of the training that shows the growth of rounding errors (compare_losses): the
# learning rate of training.yaml, increased by a factor of 1 + 1e-5.
readonly PERTURBED=(--set train.optimizer.learning_rate=0.0200002)
# Allowed difference of the losses of the first steps.
readonly TOLERANCE=0.0001

# losses NAME [--set FIELD=VALUE]…: compares float32 training on the CPU and on the GPU
losses() {
  local name=$1
  shift
  train "$name-cpu" cpu "$@" && train "$name-cpu-perturbed" cpu "$@" "${PERTURBED[@]}" && train "$name-gpu" gpu "$@" || return
  compare_losses "$jobs/$name-cpu.json" "$jobs/$name-gpu.json" "$TOLERANCE" "$jobs/$name-cpu.json" \
    "$jobs/$name-cpu-perturbed.json" | tee "$work/$name-losses.json"
}

# found FILE → the JSON in the file, or null if it does not exist.
found() {
  if [[ -s $1 ]]; then cat "$1"; else echo null; fi
}

part_quick() {
  local status=0
  contract_tests '*/cuda:*_on_cuda' activation_contract_test optimizer_contract_test || status=1
  losses quick --set train.max_steps=20 || status=1
  found "$work/quick-losses.json" >"$json"
  return $status
}

part_kernels() {
  # shellcheck disable=SC2046
  contract_tests '*/cuda:*_on_cuda' $(every_contract_test)
}

part_sanitizer() {
  local sanitizer
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || {
    skipped="no compute-sanitizer in PATH or /usr/local/cuda/bin"
    return 77
  }
  local tool status=0 found=()
  for tool in memcheck racecheck synccheck; do
    echo "$tool"
    # The tests' arrays live until the process ends, so leaks are not checked.
    local under=("$sanitizer" --tool "$tool" --target-processes all --error-exitcode 1)
    # Without convolutions: they are NVIDIA's kernels, of which dozens are tried per test.
    contract_tests '*/cuda' $(every_contract_test | grep -v '^convolution_') || status=1
    found+=("$(json_text "$tool"): $(cat "$json")")
  done
  (IFS=,; printf '{%s}\n' "${found[*]}") >"$json"
  return $status
}

part_training() {
  # Batches of 128 images, as in training.yaml: the last batch norms see a single pixel per image,
  # and with 32 images they amplify rounding errors to a thousandth of the loss in a single step, on
  # the CPU, too.
  local status=0 precision resnet=(--set 'train.model={name: resnet18}' --set train.max_steps=25)
  losses small-cnn || status=1
  losses resnet18 "${resnet[@]}" || status=1
  for precision in bfloat16 float16; do
    train "resnet18-$precision" gpu "${resnet[@]}" --set train.precision=O2 \
      --set "train.mixed_precision={dtype: $precision}" || { status=1; continue; }
    # Training in 16 bits diverges from float32, so only the final losses are compared.
    compare_losses --end "$jobs/resnet18-cpu.json" "$jobs/resnet18-$precision.json" 0.3 |
      tee "$work/resnet18-$precision-losses.json" || status=1
  done
  printf '{"small_cnn": %s, "resnet18": %s, "resnet18_bfloat16": %s, "resnet18_float16": %s}\n' \
    "$(found "$work/small-cnn-losses.json")" "$(found "$work/resnet18-losses.json")" \
    "$(found "$work/resnet18-bfloat16-losses.json")" "$(found "$work/resnet18-float16-losses.json")" >"$json"
  return $status
}

part_bandwidth() {
  within 60 memory_bench --device=cuda --json >"$json"
  local status=$?
  paste <(sed -n 's/.*"name": "\(.*\)".*/\1/p' "$json") <(sed -n 's/.*"share_of_copy": \([0-9.]*\).*/\1/p' "$json") \
    <(sed -n 's/.*"target": \([0-9.]*\).*/\1/p' "$json") | awk -F '\t' '
      { printf "%-52s %.2f of copy%s\n", $1, $2, ($3 > 0 ? sprintf(", target %.2f%s", $3, ($2 < $3 ? ": missed" : "")) : "") }'
  return $status
}

# Steps so small that kernel launches dominate; several runs of each in turn, because single runs
# are noisy.
part_graphs() {
  local turn graphs
  local -A rates=([auto]= [never]=)
  for turn in 1 2 3; do
    for graphs in auto never; do
      train graphs gpu --set 'train.model={name: resnet18}' --set train.global_batch=32 --set train.precision=O2 \
        --set train.max_steps=200 --set "train.cuda_graphs=$graphs" || return
      rates[$graphs]+="$(json_value "$jobs/graphs.json" images_per_second) "
    done
  done
  local recorded unrecorded gain
  recorded=$(median ${rates[auto]})
  unrecorded=$(median ${rates[never]})
  gain=$(ratio "$recorded" "$unrecorded")
  printf '{"images": 32, "recorded_images_per_second": %s, "unrecorded_images_per_second": %s, "gain": %s}\n' \
    "$recorded" "$unrecorded" "$gain" | tee "$json"
  reaches "$gain" 1
}

# median NUMBER…
median() {
  printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"
}

# Model, image size, batch, whether the data set may reside on the GPU, and the minimum ratio of images/s to PyTorch's
# best form and to its eager form. PyTorch's data reside on the GPU.
THROUGHPUT="resnet50 224 256 never 1.3 1.3
resnet101 224 128 auto 1.3 1.3
mobilenet_v2 112 256 auto 2 2
resnet18 32 128 auto 1.3 3"
# Upper limits: share of a step spent waiting for data in host memory; host seconds per step.
readonly MOST_WAIT=0.02 MOST_HOST=0.0001

# ratio A B → A / B, null without B
ratio() {
  awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.3f", a / b; else print "null" }'
}

# reaches RATIO TARGET: succeeds if RATIO is at least TARGET, or null
reaches() {
  awk -v r="$1" -v t="$2" 'BEGIN { exit !(r == "null" || r >= t) }'
}

# peer MODEL IMAGE BATCH FORM → its line of JSON, or nothing if it failed
peer() {
  local log=$out/torch-$1-$4.log
  within 100 "$PYTHON" "$ROOT/tests/bench/peers/torch_gpu.py" --model "$1" --image "$2" --batch "$3" --mode "$4" \
    >"$log" 2>&1 || {
    echo "PyTorch $1 $4 failed: $log" >&2
    return
  }
  tail -n 1 "$log"
}

part_throughput() {
  local model image batch resident target eager_target failed=0 rows=() job
  read -ra models <<<"${MODELS:-resnet50 resnet101 mobilenet_v2 resnet18}"
  read -ra forms <<<"${FORMS:-eager default reduce-overhead}"
  has_torch || forms=()
  # Muster's runs come first, so that none is missing if time runs out.
  while read -r model image batch resident target eager_target; do
    [[ " ${models[*]} " == *" $model "* ]] || continue
    train "throughput-${model//_/-}" gpu --set "train.model={name: $model}" --set "train.image_size=$image" \
      --set "train.global_batch=$batch" --set "train.dataset.resident=$resident" --set train.precision=O2 \
      --set train.max_steps=60 || failed=1
  done <<<"$THROUGHPUT"
  printf '%-14s %5s %5s %10s %10s %8s %8s %8s\n' model image batch images/s "wait" host best eager
  while read -r model image batch resident target eager_target; do
    job=$jobs/throughput-${model//_/-}.json
    [[ " ${models[*]} " == *" $model "* && -s $job ]] || continue
    local ours best=0 eager=0 peers=() form line
    ours=$(json_value "$job" images_per_second)
    [[ -n $ours ]] || continue
    for form in "${forms[@]}"; do
      line=$(peer "$model" "$image" "$batch" "$form")
      [[ -n $line ]] || continue
      peers+=("$(json_text "$form"): $line")
      local theirs
      theirs=$(json_value <(echo "$line") images_per_second)
      [[ $form == eager ]] && eager=$theirs
      best=$(awk -v a="$best" -v b="$theirs" 'BEGIN { print (b > a ? b : a) }')
    done
    local to_best to_eager wait_share host
    host=$(json_value "$job" queue_seconds)
    to_best=$(ratio "$ours" "$best")
    to_eager=$(ratio "$ours" "$eager")
    wait_share=$(ratio "$(json_value "$job" data_wait_seconds)" "$(json_value "$job" median_step_seconds)")
    printf '%-14s %5d %5d %10.0f %9.1f%% %5.0f us %8s %8s\n' "$model" "$image" "$batch" "$ours" \
      "$(awk -v w="$wait_share" 'BEGIN { print 100 * w }')" "$(awk -v h="$host" 'BEGIN { print 1e6 * h }')" \
      "$to_best" "$to_eager"
    if ! reaches "$to_best" "$target" || ! reaches "$to_eager" "$eager_target"; then
      echo "$model: below the targets of $target (best form) and $eager_target (eager)"
      failed=1
    fi
    if ! awk -v h="$host" -v most=$MOST_HOST 'BEGIN { exit !(h <= most) }'; then
      echo "$model: the host needs more than $MOST_HOST s per step"
      failed=1
    fi
    if [[ $resident == never ]] && ! awk -v w="$wait_share" -v most=$MOST_WAIT 'BEGIN { exit !(w <= most) }'; then
      echo "$model: waits for data for more than $MOST_WAIT of a step"
      failed=1
    fi
    rows+=("$(json_text "$model"): {\"images_per_second\": $ours, \"data_wait_share\": $wait_share, \"host_seconds\": $host, \"to_best\": $to_best, \"to_eager\": $to_eager, \"targets\": [$target, $eager_target], \"torch\": {$(IFS=,; echo "${peers[*]}")}}")
  done <<<"$THROUGHPUT"
  (IFS=,; printf '{%s}\n' "${rows[*]}") >"$json"
  return $failed
}

part_accuracy() {
  local folder=${FASHION_MNIST:-/usr/share/datasets/fashion-mnist}
  [[ -d $folder ]] || { skipped="no $folder; set FASHION_MNIST to the data set's folder"; return 77; }
  within 120 muster local "$ROOT/deploy/examples/fashion_mnist_fast.yaml" --set "train.dataset.path=$folder" \
    --ranks-per-node 1 --set resources.device=gpu --set train.precision=O2 -o json >"$work/accuracy.json" || return
  local accuracy peer=null
  accuracy=$(json_value "$work/accuracy.json" test_accuracy)
  if has_torch; then
    # The same recipe as Muster's.
    within 120 "$PYTHON" "$ROOT/tests/bench/peers/torch_accuracy.py" --device cuda --ranks 1 --amp --data "$folder" \
      --learning-rate 0.2 --nesterov --crop-padding 1 --flip --dropout 0.1 --ema-decay 0.99 >"$out/torch-accuracy.log" 2>&1 &&
      peer=$(tail -n 1 "$out/torch-accuracy.log")
  fi
  local seconds
  seconds=$(awk '{ gsub(/[",]/, "") } $1 == "test_accuracy:" { a = $2 }
                 $1 == "training_seconds:" && a >= 0.93 { print $2; exit }' "$work/accuracy.json")
  printf '{"muster": {"test_accuracy": %s, "training_seconds_to_0.93": %s}, "torch": %s}\n' "$accuracy" \
    "${seconds:-null}" "$peer" | tee "$json"
  [[ -n $seconds ]]
}

# shellcheck source=tests/gpu/cluster.sh
source "$HERE/cluster.sh"

# ---- run

under=()
path=
skipped=
unpack
export MUSTER_CUDA_LIBRARY_PATH=${MUSTER_CUDA_LIBRARY_PATH:-$(python_libraries)}

gpu=$(memory_bench --device=cuda --megabytes=1 --json 2>&1) || [[ $? -eq 1 ]] || {
  echo "run.sh: ${gpu#memory_bench: }" >&2
  exit 69
}
device=$(json_value <(echo "$gpu") device)
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
echo "$device${driver:+, driver $driver}, Muster $(muster version | head -n 1)"

results=()
failures=0
for part in "${parts[@]}"; do
  json=$out/$part.json
  rm -f "$json"
  start=$SECONDS
  echo "== $part"
  if (($(remaining) > 5)); then
    "part_$part" > >(tee "$out/$part.log") 2>&1
    status=$?
    wait $! # for tee
  else
    skipped="no time left" status=77
  fi
  case $status in
    0) state=passed ;;
    77) state="skipped: $skipped" ;;
    *) state=failed; failures=$((failures + 1)) ;;
  esac
  results+=("$(json_text "$part"): {\"state\": $(json_text "$state"), \"seconds\": $((SECONDS - start)), \"found\": $([[ -s $json ]] && cat "$json" || echo null)}")
  summary+=$(printf '\n%-12s %4d s  %s' "$part" $((SECONDS - start)) "$state")
done
(
  IFS=,
  printf '{"device": %s, "driver": %s, "date": "%s", "parts": {%s}}\n' "$(json_text "$device")" \
    "$(json_text "$driver")" "$(date -u +%F)" "${results[*]}"
) >"$out/results.json"
echo "$summary"
echo "$out/results.json"
((failures == 0))
