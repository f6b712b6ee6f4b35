# shellcheck shell=bash
# Part of run.sh: images/s, with PyTorch on the same GPU for comparison.

# Model, image size, batch, whether the dataset may reside on the GPU, and the minimum ratio of images/s to PyTorch's
# best form and to its eager form. PyTorch's data reside on the GPU.
readonly MAIN_MODELS="resnet50 224 256 never 1.3 1.3
mobilenet_v2 112 256 auto 2 2"
readonly OTHER_MODELS="resnet101 224 128 auto 1.3 1.3
resnet18 32 128 auto 1.3 3"
readonly REPEATS=3
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
  within "$PYTHON" "$ROOT/tests/bench/peers/torch_gpu.py" --model "$1" --image "$2" --batch "$3" --mode "$4" \
    >"$log" 2>&1 || {
    echo "PyTorch $1 $4 failed: $log" >&2
    return
  }
  tail -n 1 "$log"
}

# model_fields MODEL IMAGE BATCH RESIDENT → sets $fields, the options that train the model in bfloat16
model_fields() {
  fields=(--set "train.model={name: $1}" --set "train.image_size=$2" --set "train.global_batch=$3"
    --set "train.dataset.resident=$4" --set train.precision=O2 --set train.max_steps=60)
}

# run_models MODELS: trains each model $REPEATS times, in turn, and records the runs. All models have a run before one has
# its second, so that none is missing if time runs out.
run_models() {
  local turn model image batch resident targets fields failed=0
  for ((turn = 1; turn <= REPEATS; ++turn)); do
    while read -r model image batch resident targets; do
      model_fields "$model" "$image" "$batch" "$resident"
      sampled "$model-clocks" train "$model-$turn" gpu "${fields[@]}" && record_model "$model" "$image" "$batch" "$resident" || failed=1
    done <<<"$1"
  done
  printf '%-14s %5s %5s %10s  %-24s %8s %8s\n' model image batch images/s runs "wait" host
  while read -r model image batch resident targets; do
    judge_host "$model" "$image" "$batch" "$resident" || failed=1
  done <<<"$1"
  return $failed
}

# record_model MODEL IMAGE BATCH RESIDENT: records the median of the runs so far
record_model() {
  local run host runs=() waits=() hosts=()
  for run in "$folder/$1"-[0-9].json; do
    [[ -n $(json_value "$run" images_per_second) ]] || continue  # it failed
    runs+=("$(json_value "$run" images_per_second)")
    waits+=("$(ratio "$(json_value "$run" data_wait_seconds)" "$(json_value "$run" median_step_seconds)")")
    host=$(json_value "$run" queue_seconds)
    hosts+=("${host:-null}")
  done
  record "$1" "{\"image\": $2, \"batch\": $3, \"images_per_second\": $(median "${runs[@]}"), \"data_wait_share\": $(median "${waits[@]}"), \"host_seconds\": $(median "${hosts[@]}"), \"resident\": \"$4\", \"runs\": [$(IFS=,; echo "${runs[*]}")]}"
}

# judge_host MODEL IMAGE BATCH RESIDENT: prints what record_model has recorded, and compares it with the limits of the host
judge_host() {
  local found=$folder/found/$1.json host wait_share failed=0
  [[ -s $found ]] || return
  host=$(json_value "$found" host_seconds)
  wait_share=$(json_value "$found" data_wait_share)
  printf '%-14s %5d %5d %10.0f  %-24s %7.1f%% %5.0f us\n' "$1" "$2" "$3" "$(json_value "$found" images_per_second)" \
    "$(sed 's/.*"runs": \[\(.*\)\].*/\1/; s/\.[0-9]*//g' "$found")" "$(awk -v w="$wait_share" 'BEGIN { print 100 * w }')" \
    "$(awk -v h="$host" 'BEGIN { print 1e6 * h }')"
  awk -v h="$host" -v most=$MOST_HOST 'BEGIN { exit !(h <= most) }' ||
    problem "$1: the host needs $host s per step, more than $MOST_HOST" || failed=1
  [[ $4 != never ]] || awk -v w="$wait_share" -v most=$MOST_WAIT 'BEGIN { exit !(w <= most) }' ||
    problem "$1: waits for data for $wait_share of a step, more than $MOST_WAIT" || failed=1
  return $failed
}

# explain MODEL IMAGE BATCH RESIDENT: the measured times of the model's operations beside their prediction, as JSON
explain() {
  local log=$folder/explain-$1.log file=$folder/explain-$1.json status=0 fields field
  model_fields "$@"
  for field in ${SETS:-}; do fields+=(--set "$field"); done
  data || return
  within muster spec explain-plan "$HERE/training.yaml" "${fields[@]}" --set "train.dataset.path=$work/cifar10" \
    --set resources.device=gpu --device cuda --time -o json >"$file" 2>"$log" || status=$?
  ((status == 0)) || { problem "explain-plan $1: $(why $status "$log")"; return; }
  record "$1-plan" "{\"step_us\": $(json_value "$file" step_us)}"
}

part_throughput() {
  local model image batch resident targets failed=0
  run_models "$MAIN_MODELS" || failed=1
  while read -r model image batch resident targets; do
    explain "$model" "$image" "$batch" "$resident" || failed=1
  done <<<"$MAIN_MODELS"
  return $failed
}

# compare_with_torch MODELS PART: measures PyTorch's forms of the models, and compares them with the results of PART
compare_with_torch() {
  local model image batch resident target eager_target ours theirs form line forms peers best eager to_best to_eager failed=0
  read -ra forms <<<"${FORMS:-eager default}"
  local -A measured=()
  # The first form of all models, then the next.
  for form in "${forms[@]}"; do
    while read -r model image batch resident target eager_target; do
      line=$(peer "$model" "$image" "$batch" "$form")
      [[ -z $line ]] || measured[$model $form]=$line
      ours=$(json_value "$out/$2/found/$model.json" images_per_second 2>/dev/null)
      peers=() best=0 eager=0
      local other
      for other in "${forms[@]}"; do
        line=${measured[$model $other]:-}
        [[ -n $line ]] || continue
        peers+=("$(json_text "$other"): $line")
        theirs=$(json_value <(echo "$line") images_per_second)
        [[ $other != eager ]] || eager=$theirs
        best=$(awk -v a="$best" -v b="$theirs" 'BEGIN { print (b > a ? b : a) }')
      done
      to_best=$(ratio "${ours:-0}" "$best") to_eager=$(ratio "${ours:-0}" "$eager")
      record "$model-torch" "{\"to_best\": $to_best, \"to_eager\": $to_eager, \"targets\": [$target, $eager_target], \"torch\": {$(IFS=,; echo "${peers[*]}")}}"
      echo "$model, PyTorch $form: $(json_value <(echo "${measured[$model $form]:-}") images_per_second) images/s; Muster ${ours:-not measured}"
    done <<<"$1"
  done
  while read -r model image batch resident target eager_target; do
    to_best=$(json_value "$folder/found/$model-torch.json" to_best) to_eager=$(json_value "$folder/found/$model-torch.json" to_eager)
    [[ -s $out/$2/found/$model.json ]] || continue
    reaches "$to_best" "$target" && reaches "$to_eager" "$eager_target" ||
      problem "$model: $to_best of PyTorch's best form, $to_eager of eager; the targets are $target and $eager_target" || failed=1
  done <<<"$1"
  return $failed
}

part_torch() {
  has_torch || { skip "no PyTorch with CUDA in $PYTHON"; return; }
  compare_with_torch "$MAIN_MODELS" throughput
}

part_models() {
  local failed=0
  run_models "$OTHER_MODELS" || failed=1
  if has_torch; then compare_with_torch "$OTHER_MODELS" models || failed=1; fi
  return $failed
}

# JPEG files as large as ImageNet's. The files of a class are links to a few images, because decoding does not depend on it.
part_jpeg() {
  local model image batch resident targets fields run threads failed=0
  within make_jpegs "$work/jpegs" "${JPEGS:-5120}" 500 375 || { problem "make_jpegs failed"; return; }
  while read -r model image batch resident targets; do
    model_fields "$model" "$image" "$batch" never
    sampled "$model-clocks" train "$model-jpeg" gpu "${fields[@]}" --set "train.dataset={name: image_folder, path: $work/jpegs}" \
      --set 'train.augment={flip: true, random_resized_crop: {}}' || { failed=1; continue; }
    run=$folder/$model-jpeg.json
    threads=$(grep -rhoE 'loader threads: [0-9]+' "$kept/$model-jpeg" | head -n 1)
    record "$model" "{\"images_per_second\": $(json_value "$run" images_per_second), \"data_wait_share\": $(ratio "$(json_value "$run" data_wait_seconds)" "$(json_value "$run" median_step_seconds)"), \"loader_threads\": ${threads##* }, \"cpus\": $(nproc)}"
    echo "$model from JPEG files: $(<"$folder/found/$model.json")"
  done <<<"$MAIN_MODELS"
  return $failed
}
