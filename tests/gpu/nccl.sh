# shellcheck shell=bash
# Part of run.sh: ranks of several workers on one GPU, which NCCL accepts for ranks on different hosts.

# rank_pid NODE → pid of the node's rank
rank_pid() {
  local process
  for process in /proc/[0-9]*; do
    [[ $(readlink "$process/exe") == */muster-rank || $(tr '\0' ' ' <"$process/cmdline" 2>/dev/null) == *muster-rank* ]] &&
      tr '\0' '\n' <"$process/environ" 2>/dev/null | grep -q "$cluster/$1" && echo "${process#/proc/}" && return
  done 2>/dev/null
  return 1
}

# await_job JOB PATTERN: waits up to a minute until the output of `muster get` matches
await_job() {
  local deadline=$((SECONDS + 60))
  until muster get "$1" -o json 2>/dev/null | grep -qE "$2"; do
    ((SECONDS < deadline)) || { problem "$1: timed out after a minute waiting for $2"; return; }
    pause 0.1
  done
}

# left_seconds LOG → the longest time from a failure until a communicator's kernels had ended; fails if there is none
left_seconds() {
  awk '/leaving NCCL: kernels ended after/ {
         match($0, /after [0-9.]+[a-z]+/)
         time = substr($0, RSTART + 6, RLENGTH - 6)
         unit = time
         gsub(/[0-9.]/, "", unit)
         if (!(unit in units)) next
         seconds = time * units[unit]
         if (found++ == 0 || seconds > most) most = seconds
       }
       BEGIN { units["s"] = 1; units["ms"] = 1e-3; units["us"] = 1e-6; units["ns"] = 1e-9; units["m"] = 60 }
       END { if (found) printf "%.3f", most; exit !found }' "$1"
}

# Kills one rank with SIGKILL during training. The other one leaves NCCL within two seconds, and the job recovers. When
# its process has ended is recorded only: the driver may take longer to release the GPU.
killed() {
  local job survivor victim begin seconds left
  job=$(muster submit "$HERE/training.yaml" --name killed --set "train.dataset.path=$work/cifar10" \
    --set resources.device=gpu --set resources.nodes=2 --set resources.share_device=true --set train.max_steps=100000 \
    --set train.global_batch=16 --set restart.max=1) || { problem "killed: cannot submit the job"; return; }
  await_job "$job" '"step": *"?[1-9][0-9]' || return
  survivor=$(rank_pid node-1) && victim=$(rank_pid node-2) || { problem "killed: found no ranks"; return; }
  kill -9 "$victim"
  begin=${EPOCHREALTIME/./}
  while [[ -d /proc/$survivor ]] && ((${EPOCHREALTIME/./} - begin < 30000000)); do pause 0.01; done
  seconds=$(awk -v us="$((${EPOCHREALTIME/./} - begin))" 'BEGIN { printf "%.2f", us / 1e6 }')
  record survivor_process_seconds "$seconds"
  await_job "$job" '"generation": *"?2' && await_job "$job" '"state": *"RUNNING"' || return
  echo "the job continues in generation 2"
  muster logs "$job" --generation 1 >"$folder/killed.log" 2>&1
  muster cancel "$job" >/dev/null
  # A rank whose work does not wait for the other one leaves NCCL without an abort.
  left=$(left_seconds "$folder/killed.log") || left=0
  record survivor_left_nccl_seconds "$left"
  echo "kill -9 of a rank: the other one left NCCL after $left s, and its process ended after $seconds s"
  awk -v s="$left" 'BEGIN { exit !(s <= 2) }' || problem "killed: the other rank left NCCL after $left s; the limit is 2"
}

# All-reduces between two ranks on one GPU: measures the cost when processes take turns on the GPU, not link bandwidth.
allreduce() {
  local log=$folder/allreduce.log status=0
  within allreduce_bench --backend=nccl --ranks=2 --share-gpu --rounds=3 --min-bytes=4KiB \
    --max-bytes="${ALLREDUCE_MAX:-64MiB}" --json >"$folder/allreduce.json" 2>"$log" || status=$?
  ((status == 0)) || { cat "$log"; problem "allreduce_bench: $(why $status "$log")"; return; }
  record allreduce "$(<"$folder/allreduce.json")"
  awk '/"bytes"|"time_us"|"algbw|"busbw/ { gsub(/[",]/, ""); printf "%s %s  ", $1, $2 } /"faster"/ { print "" }' \
    "$folder/allreduce.json"
}

readonly ALL_NCCL_CHECKS="by-two by-two-normed in-stages killed allreduce"
wanted() { [[ " ${NCCL_CHECKS:-$ALL_NCCL_CHECKS} " == *" $1 "* ]]; }

part_nccl() {
  [[ -z $nccl_missing ]] || { skip "$nccl_missing"; return; }
  local failed=0
  contract_tests '*nccl_on_gpu*' contract_test || failed=1
  if wanted allreduce; then allreduce || failed=1; fi
  local stages='train.strategy={name: pipeline, pipeline: {stages: 2, micro_batches: 2}}'
  local plain=(--set train.model.batch_norm=false) synced=(--set train.model.batch_norm=true --set train.sync_batch_norm=true)
  train alone gpu "${plain[@]}" && train alone-perturbed gpu "${plain[@]}" "${PERTURBED[@]}" || failed=1
  # Like a pipeline with two micro-batches: two halves of each batch, one after the other.
  if wanted in-stages; then train alone-in-halves gpu "${plain[@]}" --set train.accumulation_steps=2 || failed=1; fi
  if wanted by-two-normed; then
    train alone-normed gpu "${synced[@]}" && train alone-normed-perturbed gpu "${synced[@]}" "${PERTURBED[@]}" || failed=1
  fi
  cluster_up 0 0 || return
  if wanted by-two; then
    on_cluster by-two --set resources.share_device=true "${plain[@]}" && agrees by-two alone alone alone-perturbed || failed=1
  fi
  if wanted by-two-normed; then
    on_cluster by-two-normed --set resources.share_device=true "${synced[@]}" &&
      agrees by-two-normed alone-normed alone-normed alone-normed-perturbed || failed=1
  fi
  if wanted in-stages; then
    on_cluster in-stages --set resources.share_device=true "${plain[@]}" --set "$stages" && agrees in-stages alone-in-halves alone alone-perturbed || failed=1
  fi
  if wanted killed; then killed || failed=1; fi
  return $failed
}
