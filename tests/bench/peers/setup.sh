#!/usr/bin/env bash
# Creates .venv with the current PyTorch from PyPI (some GB), and torchft, for the benchmarks that compare Muster
# with them.
set -euo pipefail
cd "$(dirname "$0")/../../.."
[[ -x .venv/bin/python ]] || python3 -m venv .venv
.venv/bin/pip install --quiet --upgrade torch torchvision torchft numpy
.venv/bin/python -c 'import torch; print("torch", torch.__version__)'
