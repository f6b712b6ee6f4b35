#!/usr/bin/env bash
# Creates .venv-tests with TensorBoard, which tests use to read event files and Debian does not
# package. Does nothing if it is already installed.
#
#   tests/support/setup_venv.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

venv=.venv-tests
if "$venv/bin/python" -c "import tensorboard" 2>/dev/null; then exit 0; fi
echo "creating $venv with TensorBoard from the Python package index"
/usr/bin/python3 -m venv --clear "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check tensorboard
