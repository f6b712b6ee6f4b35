#!/usr/bin/env bash
# Makes .venv-tests, with what tests read Muster's files by and Debian does not have: TensorBoard. Quick when it is there.
#
#   tests/support/setup_venv.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

venv=.venv-tests
if "$venv/bin/python" -c "import tensorboard" 2>/dev/null; then exit 0; fi
echo "making $venv: TensorBoard from the Python package index"
/usr/bin/python3 -m venv --clear "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check tensorboard
