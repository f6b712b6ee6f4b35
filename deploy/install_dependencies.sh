#!/usr/bin/env bash
# Installs the Debian 12 packages that Muster needs to build and test. Does nothing if all are installed.
#
#   deploy/install_dependencies.sh [--with-tests]
set -euo pipefail

packages=(
  bazel-bootstrap bazel-rules-java bazel-rules-proto clang lld pkg-config
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev
  libabsl-dev libgoogle-glog-dev libcli11-dev nlohmann-json3-dev libyaml-cpp-dev
  prometheus-cpp-dev libsqlite3-dev libssl-dev zlib1g-dev libjpeg62-turbo-dev
  libgloo-dev libunwind-dev libgtest-dev libgmock-dev libbenchmark-dev patchelf dpkg-dev
  dataset-fashion-mnist python3
  libopenmpi-dev openmpi-bin  # needed only for the mpi backend and for jobs with launcher: mpi
)
if [[ ${1:-} == --with-tests ]]; then
  packages+=(libclang-rt-dev prometheus iproute2 procps curl openssl python3-mpi4py python3-torch python3-torchvision python3-pil python3-venv chromium python3-yaml python3-pyte lintian man-db slurm-wlm)
fi

missing=()
for package in "${packages[@]}"; do
  [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) == 'install ok installed' ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi
if [[ $(id -u) -ne 0 ]]; then
  echo "missing packages: ${missing[*]}" >&2
  echo "run this script as root, or install them with: apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "installing: ${missing[*]}" >&2
# Packages with a daemon (prometheus) must not start it.
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{ apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 &
installer=$!
trap 'kill "$installer" 2>/dev/null' INT TERM
waited=0
# On a terminal the line above suffices; a log gets a line every ten seconds.
while [[ ! -t 2 ]] && kill -0 "$installer" 2>/dev/null; do
  sleep 1
  if ((++waited % 10 == 0)); then
    echo "installing: $waited s" >&2
  fi
done
if ! wait "$installer"; then
  cat "$log" >&2
  exit 1
fi
