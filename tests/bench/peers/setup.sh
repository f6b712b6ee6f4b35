#!/usr/bin/env bash
# Makes .venv with the current PyTorch from PyPI, which the benchmarks compare Muster with (some GB).
set -euo pipefail
cd "$(dirname "$0")/../../.."
[[ -x .venv/bin/python ]] || python3 -m venv .venv
.venv/bin/pip install --quiet --upgrade torch torchvision numpy
.venv/bin/python -c 'import torch; print("torch", torch.__version__)'
