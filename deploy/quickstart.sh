#!/usr/bin/env bash
# From nothing to a trained model on this machine: installs what is missing, builds, starts a coordinator and two
# workers on loopback, trains Fashion-MNIST on both, and stops everything again.
#
#   deploy/quickstart.sh [SPEC [muster run's options]]
#
# Exits with the job's status.
set -euo pipefail
cd "$(dirname "$0")/.."

spec=${1:-deploy/examples/fashion_mnist.yaml}
[[ $# -gt 0 ]] && shift

deploy/install_dependencies.sh
echo "building (the first time takes some minutes)" >&2
bazel build //cli:muster //coordinator:muster-coordinator //worker:all 2>&1 | grep -E '^(ERROR|FAILED|CUDA|.*error:)|CUDA:' >&2 || true
# Bazel keeps a server for the next build: what this script started, it also ends.
bazel shutdown >/dev/null 2>&1 || true
for binary in cli/muster coordinator/muster-coordinator worker/muster-worker worker/muster-shim trainer/muster-rank; do
  [[ -x bazel-bin/$binary ]] || { echo "the build left no $binary; see: bazel build //..." >&2; exit 1; }
done

dir=$(mktemp -d "${TMPDIR:-/tmp}/muster-quickstart.XXXXXX")
pids=()
stop() {
  local status=$?
  trap - EXIT INT TERM
  # Workers first: they end their ranks, and say so to a coordinator that still listens.
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    kill -TERM "${pids[i]}" 2>/dev/null || true
    wait "${pids[i]}" 2>/dev/null || true
  done
  if [[ $status -eq 0 ]]; then
    rm -rf "$dir"
  else
    echo "daemons' and ranks' logs are kept in $dir" >&2
  fi
  exit "$status"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# start NAME PROGRAM ARGS…: runs a daemon and waits for the line that says where it listens.
start() {
  local name=$1 deadline=$((SECONDS + 30))
  shift
  "$@" >"$dir/$name.out" 2>"$dir/$name.log" &
  pids+=($!)
  until grep -q '^listening ' "$dir/$name.out"; do
    if ! kill -0 "${pids[-1]}" 2>/dev/null || ((SECONDS > deadline)); then
      echo "$name did not start:" >&2
      cat "$dir/$name.log" >&2
      exit 1
    fi
    sleep 0.05
  done
  echo "$name: $(cat "$dir/$name.out")" >&2
}

start coordinator bazel-bin/coordinator/muster-coordinator \
  --listen=127.0.0.1:0 --http=127.0.0.1:0 --data-dir="$dir/coordinator"
address=$(sed -n 's/.*grpc=\([^ ]*\).*/\1/p' "$dir/coordinator.out")
for node in node-1 node-2; do
  start "$node" bazel-bin/worker/muster-worker \
    --coordinator="$address" --name="$node" --data-dir="$dir/$node" --slots=1
done

export MUSTER_COORDINATOR=$address
bazel-bin/cli/muster node list >&2
status=0
bazel-bin/cli/muster run "$spec" "$@" || status=$?
exit "$status"
