# shellcheck shell=bash
# Part of run.sh: a coordinator and two workers, and training on them.

# The dataset of a cluster of two machines, which needs the same path on both.
readonly COMMON_DATA=${COMMON_DATA:-/tmp/muster-gpu-kit-data}

# cluster_up DEVICE DEVICE: starts a coordinator and two workers, node-1 and node-2, that each offer one GPU. They run until the
# part ends. With DEVICE other, the second worker is that of another machine (--join).
cluster_up() {
  cluster=$kept/cluster
  mkdir -p "$cluster"
  export MUSTER_TOKEN_DIR=$cluster/tokens
  local address=127.0.0.1:0 flags=()
  if [[ $2 == other ]]; then
    address=$listen
    echo "worker $join_token nodes" >"$cluster/tokens.txt"
    chmod 0600 "$cluster/tokens.txt"
    flags=(--insecure-bind --tokens="$cluster/tokens.txt")
  else
    export NCCL_SOCKET_IFNAME=lo
  fi
  start_daemon coordinator muster-coordinator --listen="$address" "${flags[@]}" || return
  MUSTER_COORDINATOR=$(sed -n 's/^listening .*grpc=\([^ ]*\).*/\1/p' "$cluster/coordinator.out")
  export MUSTER_COORDINATOR
  start_worker node-1 "$1" || return
  [[ $2 == other ]] || start_worker node-2 "$2" || return
  local deadline=$((SECONDS + $(seconds_left)))
  until [[ $(muster node list -o json 2>/dev/null) == *'"node-2"'* ]]; do
    ((SECONDS < deadline)) || { problem "node-2 has not joined"; return; }
    pause 0.2
  done
}

# start_worker NAME DEVICE
start_worker() {
  start_daemon "$1" muster-worker --coordinator="$MUSTER_COORDINATOR" --name="$1" --slots=1 --devices="$2"
}

# start_daemon NAME PROGRAM FLAG…: starts a daemon and waits until it listens
start_daemon() {
  local name=$1 program=$2
  shift 2
  "$program" "$@" --http=127.0.0.1:0 --data-dir="$cluster/$name" >"$cluster/$name.out" 2>"$cluster/$name.log" &
  local pid=$!
  until grep -qs '^listening ' "$cluster/$name.out"; do
    kill -0 "$pid" 2>/dev/null || { cat "$cluster/$name.log"; problem "$program does not start: $(tail -n 1 "$cluster/$name.log")"; return; }
    pause 0.05
  done
}

# on_cluster NAME [FLAG…]: trains small_cnn with two ranks, one per worker → $folder/NAME.json, the finished job
on_cluster() {
  local name=$1 field status=0
  shift
  for field in ${SETS:-}; do set -- "$@" --set "$field"; done
  within muster run "$HERE/training.yaml" --name "$name" --set "train.dataset.path=$work/cifar10" \
    --set resources.device=gpu --set resources.nodes=2 --losses -o json "$@" \
    >"$folder/$name.json" 2>"$folder/$name.log" || status=$?
  cat "$folder/$name.log"
  ((status == 0)) && return
  muster describe "$name" 2>/dev/null
  problem "$name: $(why $status "$folder/$name.log")"
}

# agrees NAME ALONE STABLE PERTURBED: compares the losses of NAME with those of the single rank ALONE, where STABLE and
# PERTURBED measure the growth of rounding errors (compare_losses), and checks that both ranks have identical weights
agrees() {
  local failed=0 differing
  compare "$1" "$folder/$2.json" "$folder/$1.json" "$TOLERANCE" "$folder/$3.json" "$folder/$4.json" || failed=1
  differing=$(json_value "$folder/$1.json" differing_replicas)
  [[ ${differing:-0} == 0 ]] || problem "$1: the ranks' weights differ" || failed=1
  return $failed
}

# join_cluster HOST:PORT TOKEN: offers this machine's first GPU to the other machine's coordinator while that runs
join_cluster() {
  local deadline=$((SECONDS + ${LIMIT:-900})) coordinator=$1
  listens() { (exec 3<>"/dev/tcp/${coordinator%:*}/${coordinator##*:}") 2>/dev/null; }
  echo "waiting for the coordinator at $coordinator"
  until listens; do
    ((SECONDS < deadline && interrupted == 0)) || { echo "run.sh: no coordinator at $coordinator" >&2; return 69; }
    pause 1
  done
  make_cifar10 "$COMMON_DATA" 5000 512 || { echo "run.sh: cannot write $COMMON_DATA" >&2; return 73; }
  MUSTER_TOKEN=$2 muster-worker --coordinator="$coordinator" --name=node-2 --slots=1 --devices=0 --data-dir="$work/node-2" &
  while ((SECONDS < deadline && interrupted == 0)) && listens; do pause 1; done
  end_processes
  rm -rf "$COMMON_DATA"
  echo "the other machine is done"
}
