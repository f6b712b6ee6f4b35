"""@cuda: repository rule that locates the CUDA Toolkit.

@cuda//:config.bzl defines CUDA_PRESENT, NVCC and CUDA_VERSION (13000 is 13.0, 0 without the toolkit). On a machine without the toolkit, everything except the CUDA library
is built, and one line is printed. CUDA_HOME=none ignores an installed toolkit.
"""

def _version(header):
    """The value of CUDART_VERSION in cuda_runtime_api.h."""
    for line in header.split("\n"):
        words = [word for word in line.split(" ") if word]
        if words[:2] == ["#define", "CUDART_VERSION"]:
            return int(words[2])
    fail("CUDA: cuda_runtime_api.h does not define CUDART_VERSION")

def _cuda_configure_impl(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    present = home != "none" and ctx.path(home + "/bin/nvcc").exists
    version = 0
    if present:
        version = _version(ctx.read(home + "/include/cuda_runtime_api.h"))
        ctx.symlink(home, "toolkit")
        ctx.file("BUILD", """package(default_visibility = ["//visibility:public"])
cc_library(name = "headers", hdrs = glob(["toolkit/include/**/*.h", "toolkit/include/**/*.hpp"]), includes = ["toolkit/include"])
""")
    else:
        if home != "none":
            # buildifier: disable=print
            print("CUDA: no nvcc under {}; building without the CUDA library".format(home))
        ctx.file("BUILD", "")
    ctx.file(
        "config.bzl",
        "CUDA_PRESENT = {}\nNVCC = {}\nCUDA_VERSION = {}\n".format(present, repr(home + "/bin/nvcc"), version),
    )

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    configure = True,
    environ = ["CUDA_HOME"],
)
