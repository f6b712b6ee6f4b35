"""@mpi: repository rule that locates an MPI installation.

@mpi//:config.bzl defines MPI_PRESENT, and @mpi//:mpi is the library if MPI is present. On a machine without MPI,
everything except the mpi backend is built, and one line is printed.
"""

# pkg-config modules of Open MPI and MPICH.
_MODULES = ["ompi-c", "ompi", "mpich"]

def _mpi_configure_impl(ctx):
    pkg_config = ctx.which("pkg-config")
    for module in _MODULES if pkg_config else []:
        include_folders = ctx.execute([pkg_config, "--cflags-only-I", module])
        libraries = ctx.execute([pkg_config, "--libs", module])
        if include_folders.return_code != 0 or libraries.return_code != 0:
            continue
        folders = [flag[2:] for flag in include_folders.stdout.split(" ") if flag.startswith("-I")]
        if not folders or not ctx.path(folders[0] + "/mpi.h").exists:
            continue
        ctx.symlink(folders[0], "include")
        flags = [f for f in libraries.stdout.strip().split(" ") if f.startswith("-l") or f.startswith("-L")]
        ctx.file("BUILD", """package(default_visibility = ["//visibility:public"])
cc_library(name = "mpi", hdrs = glob(["include/**/*.h"]), includes = ["include"], linkopts = {}, defines = ["OMPI_SKIP_MPICXX", "MPICH_SKIP_MPICXX"])
""".format(repr(flags)))
        ctx.file("config.bzl", "MPI_PRESENT = True\n")
        return

    # buildifier: disable=print
    print("MPI: pkg-config found no mpi.h ({}); building without the mpi backend".format(", ".join(_MODULES)))
    ctx.file("BUILD", "")
    ctx.file("config.bzl", "MPI_PRESENT = False\n")

mpi_configure = repository_rule(
    implementation = _mpi_configure_impl,
    configure = True,
    environ = ["PKG_CONFIG_PATH"],
)
