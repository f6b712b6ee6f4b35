"""CUDA sources compiled by nvcc. Without the CUDA Toolkit the rules build nothing."""

load("@cuda//:config.bzl", "CUDA_PRESENT", "NVCC")

# Native code for Ampere and Hopper, and PTX for GPUs newer than both.
_ARCHITECTURES = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90a,code=sm_90a",
    "-gencode=arch=compute_80,code=compute_80",
]

_CudaInfo = provider(
    doc = "Objects of .cu sources.",
    fields = {"objects": "depset of the objects of a cuda_library and of its dependencies"},
)

def _objects_of(deps):
    return [dep[_CudaInfo].objects for dep in deps if _CudaInfo in dep]

def _cuda_library_impl(ctx):
    files = ctx.files.srcs + ctx.files.hdrs
    cc_info = cc_common.merge_cc_infos(
        direct_cc_infos = [CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset(files)))],
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    )
    objects = []
    for src in ctx.files.srcs if CUDA_PRESENT else []:
        object = ctx.actions.declare_file(src.basename + ".o")
        arguments = ctx.actions.args()
        arguments.add_all(["-std=c++20", "-O3", "--expt-relaxed-constexpr"])
        arguments.add_all(_ARCHITECTURES)
        arguments.add_all(ctx.attr.copts)
        arguments.add_all(["-I.", "-Xcompiler", "-fPIC", "-c", src, "-o", object])
        ctx.actions.run(
            outputs = [object],
            inputs = depset([src], transitive = [cc_info.compilation_context.headers]),
            executable = NVCC,
            arguments = [arguments],
            use_default_shell_env = True,
            mnemonic = "CudaCompile",
        )
        objects.append(object)
    return [
        DefaultInfo(files = depset(objects)),
        _CudaInfo(objects = depset(objects, transitive = _objects_of(ctx.attr.deps))),
        cc_info,
    ]

cuda_library = rule(
    doc = "Objects of CUDA sources, for cuda_shared_library. A cc_library that depends on it may include the sources.",
    implementation = _cuda_library_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = [".h"]),
        "copts": attr.string_list(doc = "Further options of nvcc."),
        "deps": attr.label_list(
            doc = "cuda_library and cc_library targets whose headers the sources include.",
            providers = [CcInfo],
        ),
    },
)

def _cuda_shared_library_impl(ctx):
    if not CUDA_PRESENT:
        return []
    library = ctx.actions.declare_file(ctx.label.name + ".so")
    objects = depset(transitive = _objects_of(ctx.attr.deps))
    arguments = ctx.actions.args()
    arguments.add_all(["-shared", "-cudart=static"])
    arguments.add_all(objects)
    arguments.add_all(["-o", library])
    ctx.actions.run(
        outputs = [library],
        inputs = objects,
        executable = NVCC,
        arguments = [arguments],
        use_default_shell_env = True,
        mnemonic = "CudaLink",
    )
    return [DefaultInfo(files = depset([library]), runfiles = ctx.runfiles([library]))]

cuda_shared_library = rule(
    doc = "NAME.so with all objects of `deps`, to be opened at run time; no file without the CUDA Toolkit.",
    implementation = _cuda_shared_library_impl,
    attrs = {"deps": attr.label_list(doc = "cuda_library targets.", providers = [_CudaInfo])},
)
