# shellcheck shell=bash
# Part of run.sh: training with a coordinator and a worker on one GPU.

# The dataset of most parts, in $work/cifar10.
data() {
  [[ -d $work/cifar10 ]] && return
  rm -rf "$work/cifar10.new"
  make_cifar10 "$work/cifar10.new" 5000 512 && mv "$work/cifar10.new" "$work/cifar10" || problem "make_cifar10 failed"
}

# train NAME DEVICE [--set FIELD=VALUE]… → $folder/NAME.json, the finished job
train() {
  local name=$1 device=$2 field status=0
  shift 2
  for field in ${SETS:-}; do set -- "$@" --set "$field"; done
  data || return
  within muster local "$HERE/training.yaml" --name "${name//_/-}" --keep "$kept/$name" --set "train.dataset.path=$work/cifar10" \
    --set "resources.device=$device" --losses -o json "$@" >"$folder/$name.json" 2>"$folder/$name.log" || status=$?
  cat "$folder/$name.log"
  ((status == 0)) || problem "$name: $(why $status "$folder/$name.log")"
}

# A negligible change of the training that shows the growth of rounding errors (compare_losses): the learning rate of
# training.yaml, increased by a factor of 1 + 1e-5.
readonly PERTURBED=(--set train.optimizer.learning_rate=0.0200002)
# Allowed difference of the losses of the first steps.
readonly TOLERANCE=0.0001

# compare NAME ARGUMENT…: compares losses by compare_losses and records the result as NAME
compare() {
  local name=$1 status=0
  shift
  compare_losses "$@" | tee "$folder/$name-losses.json" || status=$?
  [[ ! -s $folder/$name-losses.json ]] || record "$name" "$(<"$folder/$name-losses.json")"
  ((status == 0)) || problem "$name: the losses differ"
}

# losses NAME [--set FIELD=VALUE]…: compares float32 training on the CPU and on the GPU
losses() {
  local name=$1
  shift
  train "$name-cpu" cpu "$@" && train "$name-cpu-perturbed" cpu "$@" "${PERTURBED[@]}" && train "$name-gpu" gpu "$@" || return
  compare "$name" "$folder/$name-cpu.json" "$folder/$name-gpu.json" "$TOLERANCE" "$folder/$name-cpu.json" \
    "$folder/$name-cpu-perturbed.json"
}

part_training() {
  # Batches of 128 images, as in training.yaml: the last batch norms see a single pixel per image, and with 32 images they
  # amplify rounding errors to a thousandth of the loss in a single step, on the CPU, too.
  local failed=0 precision resnet=(--set 'train.model={name: resnet18}' --set train.max_steps=25)
  losses small_cnn || failed=1
  losses resnet18 "${resnet[@]}" || failed=1
  for precision in bfloat16 float16; do
    train "resnet18_$precision" gpu "${resnet[@]}" --set train.precision=O2 \
      --set "train.mixed_precision={dtype: $precision}" || { failed=1; continue; }
    # Training in 16 bits diverges from float32, so only the final losses are compared.
    compare "resnet18_$precision" --end "$folder/resnet18-cpu.json" "$folder/resnet18_$precision.json" 0.3 || failed=1
  done
  return $failed
}

# Steps so small that kernel launches dominate; several runs of each in turn, because single runs are noisy.
part_graphs() {
  local turn graphs
  local -A rates=([auto]= [never]=)
  for turn in 1 2 3; do
    for graphs in auto never; do
      train "$graphs-$turn" gpu --set 'train.model={name: resnet18}' --set train.global_batch=32 --set train.precision=O2 \
        --set train.max_steps=200 --set "train.cuda_graphs=$graphs" || return
      rates[$graphs]+="$(json_value "$folder/$graphs-$turn.json" images_per_second) "
    done
  done
  local captured uncaptured gain
  # shellcheck disable=SC2086
  captured=$(median ${rates[auto]}) uncaptured=$(median ${rates[never]})
  gain=$(ratio "$captured" "$uncaptured")
  record graphs "{\"images\": 32, \"captured_images_per_second\": $captured, \"uncaptured_images_per_second\": $uncaptured, \"gain\": $gain}"
  echo "$captured images/s captured, $uncaptured uncaptured"
  reaches "$gain" 1 || problem "captured steps are slower: $gain of the uncaptured rate"
}

part_accuracy() {
  local dataset=${FASHION_MNIST:-/usr/share/datasets/fashion-mnist} log=$folder/muster.log status=0
  [[ -d $dataset ]] || { skip "no $dataset; set FASHION_MNIST to the dataset's folder"; return; }
  within muster local "$ROOT/deploy/examples/fashion_mnist_fast.yaml" --keep "$kept/accuracy" \
    --set "train.dataset.path=$dataset" --ranks-per-node 1 --set resources.device=gpu --set train.precision=O2 -o json \
    >"$folder/accuracy.json" 2>"$log" || status=$?
  ((status == 0)) || { problem "muster local: $(why $status "$log")"; return; }
  local accuracy seconds peer=null
  accuracy=$(json_value "$folder/accuracy.json" test_accuracy)
  seconds=$(awk '{ gsub(/[",]/, "") } $1 == "test_accuracy:" { a = $2 }
                 $1 == "training_seconds:" && a >= 0.93 { print $2; exit }' "$folder/accuracy.json")
  record muster "{\"test_accuracy\": $accuracy, \"training_seconds_to_0.93\": ${seconds:-null}}"
  if has_torch; then
    # The same recipe as Muster's.
    within "$PYTHON" "$ROOT/tests/bench/peers/torch_accuracy.py" --device cuda --ranks 1 --amp --data "$dataset" \
      --learning-rate 0.2 --nesterov --crop-padding 1 --flip --dropout 0.1 --ema-decay 0.99 >"$folder/torch.log" 2>&1 &&
      peer=$(tail -n 1 "$folder/torch.log")
  fi
  record torch "$peer"
  echo "test accuracy $accuracy, 0.93 after ${seconds:-no} s; PyTorch: $peer"
  [[ -n $seconds ]] || problem "test accuracy $accuracy; the target is 0.93"
}
