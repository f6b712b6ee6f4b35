# shellcheck shell=bash
# Part of run.sh: the bundles' programs, the GPU and NVIDIA's libraries.

# Unpacks the bundles and adds their programs to $PATH, those of the last bundle first.
unpack_bundles() {
  local bundle program
  unpacked=()
  for bundle in "${bundles[@]}"; do
    if [[ -d $bundle ]]; then
      unpacked+=("$(cd "$bundle" && pwd)")
    elif [[ -f $bundle ]]; then
      tar xf "$bundle" -C "$work" || exit 66
      unpacked+=("$work/$(basename "$bundle" .tar.xz)")
    else
      echo "run.sh: no $bundle; bazel build //deploy:bundle //tests/gpu:bundle builds both" >&2
      exit 66
    fi
    PATH=${unpacked[-1]}/bin:$PATH
  done
  for program in muster muster-rank memory_bench make_cifar10 list_libraries; do
    command -v "$program" >/dev/null || { echo "run.sh: no $program in ${bundles[*]}" >&2; exit 66; }
  done
}

# in_bundles PATTERN → the matching files of the bundles
in_bundles() {
  local bundle
  for bundle in "${unpacked[@]}"; do compgen -G "$bundle/$1"; done
}

# → library folders of NVIDIA's Python packages, if installed
python_libraries() {
  "$PYTHON" - 2>/dev/null <<'PYTHON'
import glob, os, sysconfig
folders = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
try:
    import torch
    folders.add(os.path.dirname(os.path.dirname(torch.__file__)))
except ImportError:
    pass
print(":".join(sorted(lib for folder in folders for lib in glob.glob(folder + "/nvidia/*/lib"))))
PYTHON
}

has_torch() {
  "$PYTHON" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null
}

# Sets $device and $driver.
find_gpu() {
  local found
  found=$(memory_bench --device=cuda --megabytes=1 --json 2>&1)
  device=$(json_value <(echo "$found") device)
  [[ -n $device ]] || { echo "run.sh: ${found#memory_bench: }" >&2; exit 69; }
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
  echo "$device${driver:+, driver $driver}, Muster $(muster version | head -n 1)"
  {
    uname -a
    nproc
    nvidia-smi
  } >"$out/environment.txt" 2>&1
}

# Requires the libraries that most parts need; nccl_missing is set to the reason if there is no NCCL.
find_libraries() {
  export MUSTER_CUDA_LIBRARY_PATH=${MUSTER_CUDA_LIBRARY_PATH:-$(python_libraries)}
  if ! list_libraries >"$work/libraries" 2>&1; then
    sed 's/^/run.sh: /' "$work/libraries" >&2
    echo "run.sh: install the missing libraries, or set MUSTER_CUDA_LIBRARY_PATH to their directories" >&2
    exit 69
  fi
  tee -a "$out/environment.txt" <"$work/libraries"
  nccl_missing=$(grep '^NCCL: ' "$work/libraries")
}
