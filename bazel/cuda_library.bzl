"""Shared libraries of .cu sources, built if the CUDA Toolkit is present."""

load("@cuda//:config.bzl", "CUDA_PRESENT", "NVCC")

# SASS for Ampere and Hopper; newer GPUs compile the Ampere PTX at load time.
_ARCHITECTURES = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90a,code=sm_90a",
    "-gencode=arch=compute_80,code=compute_80",
]

def cuda_shared_library(name, srcs, hdrs = [], unfused = [], visibility = None):
    """Builds NAME.so, to be opened at run time; an empty filegroup without the toolkit.

    Args:
      name: the file's name without .so.
      srcs: .cu files, each compiled by nvcc.
      hdrs: headers of this workspace that the sources include.
      unfused: the subset of srcs compiled without fused multiply-add, so that vector and scalar versions of a loop
        round identically.
      visibility: visibility of the filegroup `NAME`.
    """
    if not CUDA_PRESENT:
        native.filegroup(name = name, srcs = [], visibility = visibility)
        return
    objects = []
    for src in srcs:
        stem = src[:-len(".cu")]
        native.genrule(
            name = stem + "_cu",
            srcs = [src] + hdrs,
            outs = [stem + ".cu.o"],
            cmd = "{} -std=c++20 -O3 --expt-relaxed-constexpr {}{} -I. -Xcompiler -fPIC -c $(location {}) -o $@".format(
                NVCC,
                " ".join(_ARCHITECTURES),
                " -fmad=false" if src in unfused else "",
                src,
            ),
        )
        objects.append(stem + ".cu.o")
    native.genrule(
        name = name + "_link",
        srcs = objects,
        outs = [name + ".so"],
        cmd = "{} -shared -cudart=static $(SRCS) -o $@".format(NVCC),
    )
    native.filegroup(name = name, srcs = [name + ".so"], visibility = visibility)
