# shellcheck shell=bash
# Part of run.sh: several GPUs, and two machines.

needs_several_gpus() {
  ((gpus > 1)) || { skip "one GPU"; return; }
  [[ -z $nccl_missing ]] || skip "$nccl_missing"
}

part_links() {
  needs_several_gpus || return
  local log=$folder/allreduce.log status=0 cells
  nvidia-smi topo -m >"$folder/topology.txt" 2>&1
  nvidia-smi topo -p2p r >"$folder/peer_access.txt" 2>&1
  # A matrix of OK or a reason, without its diagonal.
  cells=$(awk '$1 ~ /^GPU[0-9]+$/ { for (i = 2; i <= NF; ++i) if ($i != "X" && $i !~ /^GPU/) { ++all; ok += $i == "OK" } }
               END { printf "{\"pairs\": %d, \"with_peer_access\": %d}", all / 2, ok / 2 }' "$folder/peer_access.txt")
  record peer_access "$cells"
  cat "$folder/topology.txt" "$folder/peer_access.txt"
  within allreduce_bench --backend=nccl --ranks="$gpus" --rounds=3 --min-bytes=64KiB --max-bytes="${ALLREDUCE_MAX:-256MiB}" \
    --json >"$folder/allreduce.json" 2>"$log" || status=$?
  ((status == 0)) || { cat "$log"; problem "allreduce_bench: $(why $status "$log")"; return; }
  record allreduce "$(<"$folder/allreduce.json")"
}

# record_speedup NAME ONE TWO: the images/s of the finished jobs $folder/ONE.json and TWO.json
record_speedup() {
  local one two
  one=$(json_value "$folder/$2.json" images_per_second) two=$(json_value "$folder/$3.json" images_per_second)
  record "$1" "{\"one\": ${one:-null}, \"two\": ${two:-null}, \"speedup\": $(ratio "${two:-0}" "${one:-0}")}"
  echo "ResNet-50: $two images/s with two ranks, $one with one"
}

readonly SCALED=(--set 'train.model={name: resnet50}' --set train.image_size=224 --set train.precision=O2 --set train.max_steps=60)
readonly PLAIN=(--set train.model.batch_norm=false)

# The jobs of a single rank with which those of two ranks are compared. Both ranks together have the batch of the losses, and
# each of them has the batch of the images/s.
single_rank() {
  train alone gpu "${PLAIN[@]}" && train alone-perturbed gpu "${PLAIN[@]}" "${PERTURBED[@]}" &&
    train one gpu "${SCALED[@]}" --set train.global_batch=256
}

part_scaling() {
  needs_several_gpus || return
  local failed=0
  single_rank || failed=1
  train two-gpus gpu "${PLAIN[@]}" --set resources.ranks_per_node=2 && agrees two-gpus alone alone alone-perturbed || failed=1
  train two gpu "${SCALED[@]}" --set train.global_batch=512 --set resources.ranks_per_node=2 && record_speedup scaling one two || failed=1
  return $failed
}

part_nodes() {
  local failed=0 second=1 data=()
  if [[ -n $listen ]]; then
    [[ -z $nccl_missing ]] || { skip "$nccl_missing"; return; }
    second=other
    make_cifar10 "$COMMON_DATA" 5000 512 || { problem "make_cifar10 failed"; return; }
    data=(--set "train.dataset.path=$COMMON_DATA")
  else
    needs_several_gpus || return
  fi
  cluster_up 0 "$second" || return
  single_rank || failed=1
  on_cluster two-nodes "${PLAIN[@]}" "${data[@]}" && agrees two-nodes alone alone alone-perturbed || failed=1
  on_cluster two "${SCALED[@]}" --set train.global_batch=512 "${data[@]}" && record_speedup nodes one two || failed=1
  [[ -z $listen ]] || rm -rf "$COMMON_DATA"
  return $failed
}
