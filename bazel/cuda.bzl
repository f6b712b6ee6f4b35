"""@cuda: repository rule that locates the CUDA Toolkit.

@cuda//:config.bzl defines CUDA_PRESENT and NVCC. On a machine without the toolkit, everything except the CUDA library
is built, and one line is printed. CUDA_HOME=none ignores an installed toolkit.
"""

def _cuda_configure_impl(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    present = home != "none" and ctx.path(home + "/bin/nvcc").exists
    if present:
        ctx.symlink(home, "toolkit")
        ctx.file("BUILD", """package(default_visibility = ["//visibility:public"])
cc_library(name = "headers", hdrs = glob(["toolkit/include/**/*.h", "toolkit/include/**/*.hpp"]), includes = ["toolkit/include"])
""")
    else:
        if home != "none":
            # buildifier: disable=print
            print("CUDA: no nvcc under {}; building without the CUDA library".format(home))
        ctx.file("BUILD", "")
    ctx.file("config.bzl", "CUDA_PRESENT = {}\nNVCC = {}\n".format(present, repr(home + "/bin/nvcc")))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    configure = True,
    environ = ["CUDA_HOME"],
)
