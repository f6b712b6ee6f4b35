# Part of run.sh: ranks of several workers on one GPU, which NCCL accepts for ranks on different
# hosts.

# cluster_up: starts a coordinator and two workers, node-1 and node-2, that each offer the first
# GPU. Their pids are in $daemons.
cluster_up() {
  cluster=$work/cluster
  mkdir -p "$cluster"
  daemons=()
  export MUSTER_TOKEN_DIR=$cluster/tokens NCCL_SOCKET_IFNAME=lo
  start_daemon coordinator muster-coordinator --listen=127.0.0.1:0 || return
  MUSTER_COORDINATOR=$(sed -n 's/^listening .*grpc=\([^ ]*\).*/\1/p' "$cluster/coordinator.out")
  export MUSTER_COORDINATOR
  local node
  for node in node-1 node-2; do
    start_daemon "$node" muster-worker --coordinator="$MUSTER_COORDINATOR" --name="$node" --slots=1 --devices=0 || return
  done
}

# start_daemon NAME PROGRAM FLAG…: starts a daemon and waits until it listens
start_daemon() {
  local name=$1 program=$2
  shift 2
  "$program" "$@" --http=127.0.0.1:0 --data-dir="$cluster/$name" >"$cluster/$name.out" 2>"$cluster/$name.log" &
  local pid=$!
  daemons+=("$pid")
  until grep -q '^listening ' "$cluster/$name.out"; do
    kill -0 "$pid" 2>/dev/null || { cat "$cluster/$name.log"; return 1; }
    read -rt 0.05 <> <(:)
  done
  return 0
}

cluster_down() {
  local pid
  for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null; done
  for pid in "${daemons[@]}"; do wait "$pid" 2>/dev/null; done
  daemons=()
}

# on_cluster NAME [FLAG…]: trains small_cnn with two ranks, one per worker → $jobs/NAME.json, the
# finished job
on_cluster() {
  local name=$1 field
  shift
  for field in ${SETS:-}; do set -- "$@" --set "$field"; done
  within 120 muster run "$HERE/training.yaml" --name "$name" --set "train.dataset.path=$work/cifar10" \
    --set resources.device=gpu --set resources.nodes=2 --set resources.share_device=true --losses -o json "$@" \
    >"$jobs/$name.json" || {
    echo "$name failed"
    muster describe "$name" 2>/dev/null
    return 1
  }
}

# rank_pid NODE → pid of the node's rank
rank_pid() {
  local process
  for process in /proc/[0-9]*; do
    [[ $(readlink "$process/exe") == */muster-rank || $(tr '\0' ' ' <"$process/cmdline" 2>/dev/null) == *muster-rank* ]] &&
      tr '\0' '\n' <"$process/environ" 2>/dev/null | grep -q "$cluster/$1" && echo "${process#/proc/}" && return
  done 2>/dev/null
  return 1
}

# agrees NAME ALONE STABLE PERTURBED: compares the losses of NAME with those of the single rank
# ALONE, where STABLE and PERTURBED measure the growth of rounding errors (compare_losses), and
# checks that both ranks have identical weights
agrees() {
  local status=0 differing
  compare_losses "$jobs/$2.json" "$jobs/$1.json" "$TOLERANCE" "$jobs/$3.json" "$jobs/$4.json" |
    tee "$work/$1-losses.json" || status=1
  differing=$(json_value "$jobs/$1.json" differing_replicas)
  [[ ${differing:-0} == 0 ]] || { echo "$1: the ranks' weights differ"; status=1; }
  return $status
}

# await_job JOB PATTERN: waits up to a minute until the output of `muster get` matches
await_job() {
  local deadline=$((SECONDS + 60))
  until muster get "$1" -o json 2>/dev/null | grep -qE "$2"; do
    ((SECONDS < deadline)) || { echo "$1: timed out after a minute waiting for $2"; return 1; }
    read -rt 0.1 <> <(:)
  done
  return 0
}

# killed: kills one rank with SIGKILL during training. The other one ends within two seconds, and
# the job recovers.
killed() {
  local job survivor victim begin out
  job=$(muster submit "$HERE/training.yaml" --name killed --set "train.dataset.path=$work/cifar10" \
    --set resources.device=gpu --set resources.nodes=2 --set resources.share_device=true --set train.max_steps=100000 \
    --set train.global_batch=16 --set restart.max=1 2>/dev/null) || return
  await_job "$job" '"step": *"?[1-9][0-9]' || return
  survivor=$(rank_pid node-1) && victim=$(rank_pid node-2) || { echo "no ranks"; return 1; }
  kill -9 "$victim"
  begin=${EPOCHREALTIME/./}
  while [[ -d /proc/$survivor ]]; do
    out=$((${EPOCHREALTIME/./} - begin))
    ((out < 10000000)) || break
    read -rt 0.01 <> <(:)
  done
  out=$(awk -v us="$((${EPOCHREALTIME/./} - begin))" 'BEGIN { printf "%.2f", us / 1e6 }')
  echo "kill -9 of a rank: the other one ended after $out s"
  await_job "$job" '"generation": *"?2' && await_job "$job" '"state": *"RUNNING"' || return
  echo "the job continues in generation 2"
  muster cancel "$job" >/dev/null
  printf '%s' "$out" >"$work/killed-seconds"
  awk -v out="$out" 'BEGIN { exit !(out <= 2) }'
}

# All-reduces between two ranks on one GPU: measures the cost when processes take turns on the GPU,
# not link bandwidth.
allreduce() {
  within 120 allreduce_bench --backend=nccl --ranks=2 --share-gpu --rounds=3 --min-bytes=4KiB --max-bytes="${ALLREDUCE_MAX:-64MiB}" --json \
    >"$work/allreduce.json" || return
  awk '/"bytes"|"time_us"|"algbw|"busbw/ { gsub(/[",]/, ""); printf "%s %s  ", $1, $2 } /"faster"/ { print "" }' \
    "$work/allreduce.json"
}

readonly ALL_NCCL_CHECKS="by-two by-two-normed in-stages killed allreduce"
wanted() { [[ " ${NCCL_CHECKS:-$ALL_NCCL_CHECKS} " == *" $1 "* ]]; }

part_nccl() {
  local status=0
  contract_tests '*nccl_on_gpu*' contract_test || status=1
  if grep -q 'NCCL: no ' "$work/contract_test.log"; then
    skipped=$(grep -o 'NCCL: no .*' "$work/contract_test.log" | head -n 1)
    return 77
  fi
  cp "$json" "$work/nccl-contract.json"
  data || return
  local stages='train.strategy={name: pipeline, pipeline: {stages: 2, micro_batches: 2}}'
  local plain=(--set train.model.batch_norm=false) synced=(--set train.model.batch_norm=true --set train.sync_batch_norm=true)
  train alone gpu "${plain[@]}" && train alone-perturbed gpu "${plain[@]}" "${PERTURBED[@]}" || status=1
  # Like a pipeline with two micro-batches: two halves of each batch, one after the other.
  if wanted in-stages; then
    train alone-in-halves gpu "${plain[@]}" --set train.accumulation_steps=2 || status=1
  fi
  if wanted by-two-normed; then
    train alone-normed gpu "${synced[@]}" && train alone-normed-perturbed gpu "${synced[@]}" "${PERTURBED[@]}" || status=1
  fi
  if cluster_up; then
    if wanted by-two; then
      on_cluster by-two "${plain[@]}" && agrees by-two alone alone alone-perturbed || status=1
    fi
    if wanted by-two-normed; then
      on_cluster by-two-normed "${synced[@]}" &&
        agrees by-two-normed alone-normed alone-normed alone-normed-perturbed || status=1
    fi
    if wanted in-stages; then
      on_cluster in-stages "${plain[@]}" --set "$stages" &&
        agrees in-stages alone-in-halves alone alone-perturbed || status=1
    fi
    if wanted killed; then killed || status=1; fi
  else
    status=1
  fi
  cluster_down
  if wanted allreduce; then allreduce || status=1; fi
  printf '{"contract": %s, "losses": %s, "losses_synced_batch_norm": %s, "losses_in_stages": %s, "survivor_seconds": %s, "allreduce": %s}\n' \
    "$(found "$work/nccl-contract.json")" "$(found "$work/by-two-losses.json")" \
    "$(found "$work/by-two-normed-losses.json")" "$(found "$work/in-stages-losses.json")" \
    "$(found "$work/killed-seconds")" "$(found "$work/allreduce.json")" >"$json"
  return $status
}
