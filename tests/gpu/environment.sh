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
      echo "run.sh: no $bundle; bazel build //tests/gpu:kit builds it" >&2
      exit 66
    fi
    PATH=${unpacked[-1]}/bin:$PATH
  done
  for program in muster muster-rank memory_bench make_cifar10 make_jpegs list_libraries; do
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

# query FIELD,… → nvidia-smi's values of the first GPU; nothing without nvidia-smi
query() { nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits -i 0 2>/dev/null | head -n 1; }

# sampled NAME COMMAND…: runs the command, and records the GPU's median clocks and power, without samples of an idle GPU, and
# its highest temperature, as NAME
sampled() {
  local samples=$folder/$1.csv sampler status=0
  nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader,nounits -i 0 -lms 200 \
    >"$samples" 2>/dev/null &
  sampler=$!
  "${@:2}" || status=$?
  # A shell that has not yet executed the program would lose another signal.
  kill -9 "$sampler" 2>/dev/null
  wait "$sampler" 2>/dev/null
  record "$1" "$(awk -F ', *' '
    function median(values, n) { return n ? values[int((n + 1) / 2)] : "null" }
    NF == 4 && $1 + 0 > 0 { line[++n] = $0; if ($3 + 0 > most) most = $3 + 0; if ($4 + 0 > hottest) hottest = $4 + 0 }
    END {
      for (i = 1; i <= n; ++i) {
        split(line[i], value, /, */)
        if (value[3] + 0 < most / 2) continue
        sm[++busy] = value[1] + 0; memory[busy] = value[2] + 0; watts[busy] = value[3] + 0
      }
      sort(sm, busy); sort(memory, busy); sort(watts, busy)
      printf "{\"sm_mhz\": %s, \"memory_mhz\": %s, \"watts\": %s, \"celsius\": %s, \"samples\": %d}",
        median(sm, busy), median(memory, busy), median(watts, busy), n ? hottest : "null", busy
    }
    function sort(values, n,  i, j, swap) {
      for (i = 2; i <= n; ++i)
        for (j = i; j > 1 && values[j - 1] > values[j]; --j) { swap = values[j]; values[j] = values[j - 1]; values[j - 1] = swap }
    }' "$samples")"
  return $status
}

# Sets $device, $driver and $gpus, the number of GPUs.
find_gpu() {
  local found
  found=$(memory_bench --device=cuda --megabytes=1 --json 2>&1)
  device=$(json_value <(echo "$found") device)
  [[ -n $device ]] || { echo "run.sh: ${found#memory_bench: }" >&2; exit 69; }
  driver=$(query driver_version)
  gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | grep -c .)
  # CUDA_VISIBLE_DEVICES may admit fewer.
  if [[ -n ${CUDA_VISIBLE_DEVICES:-} ]]; then gpus=$(tr , '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .); fi
  ((gpus > 0)) || gpus=1
  echo "$device${driver:+, driver $driver}, $gpus GPU(s), Muster $(muster version | head -n 1)"
  {
    uname -srm
    grep -m 1 'model name' /proc/cpuinfo
    nproc
    nvidia-smi --format=csv --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,clocks.applications.graphics,power.limit,ecc.mode.current,mig.mode.current
    [[ -z $PYTHON ]] || "$PYTHON" -c 'import torch; print("PyTorch", torch.__version__)' 2>/dev/null
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
  [[ ! -e $out/environment.txt ]] || tee -a "$out/environment.txt" <"$work/libraries"
  nccl_missing=$(grep '^NCCL: ' "$work/libraries")
}
