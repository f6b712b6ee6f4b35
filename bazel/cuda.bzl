"""@cuda: whether this machine has the CUDA Toolkit to compile with, and where.

@cuda//:config.bzl gives CUDA_PRESENT and CUDA_PATH. A machine without the toolkit builds everything but the
CUDA library, and says so in one line.
"""

def _impl(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    present = ctx.path(home + "/bin/nvcc").exists
    if not present:
        # buildifier: disable=print
        print("CUDA: no nvcc under {}; building without the CUDA library".format(home))
    ctx.file("BUILD", "")
    ctx.file("config.bzl", "CUDA_PRESENT = {}\nCUDA_PATH = {}\n".format(present, repr(home)))

cuda_configure = repository_rule(
    implementation = _impl,
    configure = True,
    environ = ["CUDA_HOME"],
)
