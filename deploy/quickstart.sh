#!/usr/bin/env bash
# Trains a model on this machine from scratch: installs missing packages, builds, starts a coordinator and two workers on
# loopback, trains Fashion-MNIST on both, and stops everything.
#
#   deploy/quickstart.sh [SPEC [OPTIONS of muster run]]
#
# Exits with the job's exit code.
set -euo pipefail
cd "$(dirname "$0")/.."

spec=${1:-deploy/examples/fashion_mnist.yaml}
[[ $# -gt 0 ]] && shift

deploy/install_dependencies.sh
# The CUDA library takes minutes to compile, and only a GPU can use it.
options=()
if [[ ! -e /dev/nvidiactl && -z ${MUSTER_CUDA:-} ]]; then
  options+=(--repo_env=CUDA_HOME=none)
  echo "no GPU found: building without the CUDA library (MUSTER_CUDA=1 includes it)" >&2
fi
echo "building (the first build takes several minutes)" >&2
bazel/build.sh "${options[@]}" //cli:muster //coordinator:muster-coordinator //worker:all || exit 1
# Bazel keeps a server running for the next build; stop it, since this script started it.
bazel shutdown >/dev/null 2>&1 || true
for binary in cli/muster coordinator/muster-coordinator worker/muster-worker worker/muster-shim \
    worker/muster-c10d-store worker/muster-mpi trainer/muster-rank; do
  [[ -x bazel-bin/$binary ]] || { echo "$binary was not built; run: bazel/build.sh //..." >&2; exit 1; }
done

dir=$(mktemp -d "${TMPDIR:-/tmp}/muster-quickstart.XXXXXX")
pids=()
stop() {
  local status=$?
  trap - EXIT INT TERM
  # Stop workers first, so that they can report the end of their ranks to the coordinator.
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    kill -TERM "${pids[i]}" 2>/dev/null || true
    wait "${pids[i]}" 2>/dev/null || true
  done
  if [[ $status -eq 0 ]]; then
    rm -rf "$dir"
  else
    echo "logs of daemons and ranks are kept in $dir" >&2
  fi
  exit "$status"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# start NAME PROGRAM ARGS…: starts a daemon and waits until it prints its listening addresses.
start() {
  local name=$1 deadline=$((SECONDS + 30))
  shift
  : >"$dir/$name.out"  # the daemon's shell may open it late
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

# Checkpoints stay; everything else is removed at the end.
mkdir -p muster-checkpoints
start coordinator bazel-bin/coordinator/muster-coordinator \
  --listen=127.0.0.1:0 --http=127.0.0.1:0 --data-dir="$dir/coordinator" --checkpoint-dir="$PWD/muster-checkpoints"
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
