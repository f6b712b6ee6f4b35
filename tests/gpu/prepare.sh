#!/usr/bin/env bash
# Collects in FOLDER all that tests/gpu/run.sh needs on a machine without a build tree or a network.
#
#   tests/gpu/prepare.sh FOLDER
#
# Copies bazel-bin/tests/gpu/muster-gpu-kit.tar.xz, built by `bazel build //tests/gpu:kit`, and packs $FASHION_MNIST
# (/usr/share/datasets/fashion-mnist) with xz. Fails if FOLDER exceeds 60 MiB. Prints the sizes and the commands for the other
# machine. Requires Bash, coreutils, tar, gzip and xz.
#
# Exit status: 0; 64 without FOLDER; 66 if the kit or the dataset is missing; 73 if FOLDER cannot be written or is too large.
set -euo pipefail

readonly MOST=$((60 << 20))
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
kit=${KIT:-$ROOT/bazel-bin/tests/gpu/muster-gpu-kit.tar.xz}
dataset=${FASHION_MNIST:-/usr/share/datasets/fashion-mnist}
folder=${1:-}

fail() { echo "prepare.sh: $2" >&2; exit "$1"; }

[[ -n $folder ]] || fail 64 "no FOLDER; see the comment in ${BASH_SOURCE[0]}"
[[ -f $kit ]] || fail 66 "no $kit; bazel build //tests/gpu:kit builds it"
compgen -G "$dataset/*-ubyte.gz" >/dev/null || fail 66 "no *-ubyte.gz in $dataset; set FASHION_MNIST to the dataset's folder"
mkdir -p "$folder" || fail 73 "cannot create $folder"
rm -f "$folder/muster-gpu-kit.tar.xz" "$folder/fashion-mnist.tar.xz"
cp "$kit" "$folder/muster-gpu-kit.tar.xz"

# xz compresses the images better than the gzip of their files.
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
mkdir "$unpacked/fashion-mnist"
for file in "$dataset"/*-ubyte.gz; do
  gzip -dc "$file" >"$unpacked/fashion-mnist/$(basename "$file" .gz)"
done
tar -C "$unpacked" -cf - fashion-mnist | xz -T0 -"${XZ_LEVEL:-6}" >"$folder/fashion-mnist.tar.xz"

size=0
for file in "$folder"/*; do
  size=$((size + $(stat -c %s "$file")))
  printf '%6d KiB  %s\n' $(($(stat -c %s "$file") >> 10)) "$file"
done
printf '%6d KiB  in total; the limit is %d KiB\n' $((size >> 10)) $((MOST >> 10))
((size <= MOST)) || fail 73 "$folder is too large"
cat <<EOF

On the other machine, with this folder as $folder and RESULTS as the folder that is returned:

  mkdir -p /tmp/gpu && for archive in $folder/*.tar.xz; do tar -xf "\$archive" -C /tmp/gpu; done
  FASHION_MNIST=/tmp/gpu/fashion-mnist /tmp/gpu/muster-gpu-kit/tests/gpu/run.sh --out /tmp/gpu/results
  cp /tmp/gpu/results.tar.gz RESULTS

Later, on the same machine or with that archive as /tmp/gpu/results.tar.gz on another, add --rest. Then, here:

  tests/gpu/report.py results.tar.gz
EOF
