# shellcheck shell=bash
# Part of run.sh: images/s, with PyTorch on the same GPU for comparison.

# Model, image size, batch, whether the dataset may reside on the GPU, and the minimum ratio of images/s to PyTorch's
# best form and to its eager form. PyTorch's data reside on the GPU.
readonly THROUGHPUT="resnet50 224 256 never 1.3 1.3
resnet101 224 128 auto 1.3 1.3
mobilenet_v2 112 256 auto 2 2
resnet18 32 128 auto 1.3 3"
# Upper limits: share of a step spent waiting for data in host memory; host seconds per step.
readonly MOST_WAIT=0.02 MOST_HOST=0.0001

# median NUMBER…
median() {
  printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"
}

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
  local log=$folder/torch-$1-$4.log
  within 100 "$PYTHON" "$ROOT/tests/bench/peers/torch_gpu.py" --model "$1" --image "$2" --batch "$3" --mode "$4" \
    >"$log" 2>&1 || {
    echo "PyTorch $1 $4 failed: $log" >&2
    return
  }
  tail -n 1 "$log"
}

# run_model MODEL IMAGE BATCH RESIDENT
run_model() {
  train "$1" gpu --set "train.model={name: $1}" --set "train.image_size=$2" --set "train.global_batch=$3" \
    --set "train.dataset.resident=$4" --set train.precision=O2 --set train.max_steps=60
}

# judge_model MODEL IMAGE BATCH RESIDENT TARGET EAGER_TARGET FORM…: compares the result of run_model with PyTorch's forms
# and the targets
judge_model() {
  local model=$1 image=$2 batch=$3 resident=$4 target=$5 eager_target=$6 job=$folder/$1.json
  shift 6
  local ours best=0 eager=0 theirs form line peers=()
  ours=$(json_value "$job" images_per_second)
  [[ -n $ours ]] || return
  for form in "$@"; do
    line=$(peer "$model" "$image" "$batch" "$form")
    [[ -n $line ]] || continue
    peers+=("$(json_text "$form"): $line")
    theirs=$(json_value <(echo "$line") images_per_second)
    [[ $form == eager ]] && eager=$theirs
    best=$(awk -v a="$best" -v b="$theirs" 'BEGIN { print (b > a ? b : a) }')
  done
  local to_best to_eager wait_share host failed=0
  host=$(json_value "$job" queue_seconds)
  to_best=$(ratio "$ours" "$best")
  to_eager=$(ratio "$ours" "$eager")
  wait_share=$(ratio "$(json_value "$job" data_wait_seconds)" "$(json_value "$job" median_step_seconds)")
  record "$model" "{\"images_per_second\": $ours, \"data_wait_share\": $wait_share, \"host_seconds\": $host, \"to_best\": $to_best, \"to_eager\": $to_eager, \"targets\": [$target, $eager_target], \"torch\": {$(IFS=,; echo "${peers[*]}")}}"
  printf '%-14s %5d %5d %10.0f %9.1f%% %5.0f us %8s %8s\n' "$model" "$image" "$batch" "$ours" \
    "$(awk -v w="$wait_share" 'BEGIN { print 100 * w }')" "$(awk -v h="$host" 'BEGIN { print 1e6 * h }')" \
    "$to_best" "$to_eager"
  reaches "$to_best" "$target" && reaches "$to_eager" "$eager_target" ||
    problem "$model: $to_best of PyTorch's best form, $to_eager of eager; the targets are $target and $eager_target" || failed=1
  awk -v h="$host" -v most=$MOST_HOST 'BEGIN { exit !(h <= most) }' ||
    problem "$model: the host needs $host s per step, more than $MOST_HOST" || failed=1
  [[ $resident != never ]] || awk -v w="$wait_share" -v most=$MOST_WAIT 'BEGIN { exit !(w <= most) }' ||
    problem "$model: waits for data for $wait_share of a step, more than $MOST_WAIT" || failed=1
  return $failed
}

part_throughput() {
  local model settings failed=0
  read -ra forms <<<"${FORMS:-eager}"
  has_torch || forms=()
  local chosen=()
  while read -r model settings; do
    [[ " ${MODELS:-$model} " != *" $model "* ]] || chosen+=("$model $settings")
  done <<<"$THROUGHPUT"
  # Muster's runs come first, so that none is missing if time runs out.
  for model in "${chosen[@]}"; do
    # shellcheck disable=SC2086
    run_model $model || failed=1
  done
  printf '%-14s %5s %5s %10s %10s %8s %8s %8s\n' model image batch images/s "wait" host best eager
  for model in "${chosen[@]}"; do
    # shellcheck disable=SC2086
    judge_model $model "${forms[@]}" || failed=1
  done
  return $failed
}
