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

def _compile(ctx, srcs, copts, compilation_context, options, suffix):
    objects = []
    for src in srcs if CUDA_PRESENT else []:
        object = ctx.actions.declare_file(src.basename + suffix)
        arguments = ctx.actions.args()
        arguments.add_all(["-std=c++20", "-O3", "--expt-relaxed-constexpr"])
        arguments.add_all(options)
        arguments.add_all(copts)
        arguments.add_all(["-I.", "-Xcompiler", "-fPIC", "-c", src, "-o", object])
        ctx.actions.run(
            outputs = [object],
            inputs = depset([src], transitive = [compilation_context.headers]),
            executable = NVCC,
            arguments = [arguments],
            use_default_shell_env = True,
            mnemonic = "CudaCompile",
        )
        objects.append(object)
    return objects

def _cuda_library_impl(ctx):
    files = ctx.files.srcs + ctx.files.hdrs
    cc_info = cc_common.merge_cc_infos(
        direct_cc_infos = [CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset(files)))],
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    )
    objects = _compile(ctx, ctx.files.srcs, ctx.attr.copts, cc_info.compilation_context, _ARCHITECTURES, ".o")
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

# PTX in plain text, as the interpreter of //tests/gpu/ptx reads it.
_PTX_OPTIONS = ["-gencode=arch=compute_80,code=compute_80", "--no-compress"]

_PtxInfo = provider(
    doc = "Objects of .cu sources that contain PTX only.",
    fields = {"objects": "depset of the objects of a cuda_library and of its dependencies"},
)

def _ptx_aspect_impl(target, ctx):
    objects = []
    if _CudaInfo in target:
        objects = _compile(
            ctx,
            ctx.rule.files.srcs,
            ctx.rule.attr.copts,
            target[CcInfo].compilation_context,
            _PTX_OPTIONS,
            ".ptx.o",
        )
    deps = [dep[_PtxInfo].objects for dep in getattr(ctx.rule.attr, "deps", []) if _PtxInfo in dep]
    return [_PtxInfo(objects = depset(objects, transitive = deps))]

_ptx_aspect = aspect(
    doc = "Compiles cuda_library targets once more, to PTX.",
    implementation = _ptx_aspect_impl,
    attr_aspects = ["deps"],
)

def _ptx_archive_impl(ctx):
    archive = ctx.actions.declare_file("lib" + ctx.label.name + ".a")
    objects = depset(transitive = [dep[_PtxInfo].objects for dep in ctx.attr.deps])
    arguments = ctx.actions.args()
    arguments.add("rcsD", archive)
    arguments.add_all(objects)
    ctx.actions.run(
        outputs = [archive],
        inputs = objects,
        executable = "ar",
        arguments = [arguments],
        use_default_shell_env = True,
        mnemonic = "CudaArchive",
    )
    return [DefaultInfo(files = depset([archive]))]

ptx_archive = rule(
    doc = "libNAME.a with the objects of `deps` compiled to PTX, to be linked with a substitute CUDA runtime.",
    implementation = _ptx_archive_impl,
    attrs = {"deps": attr.label_list(doc = "cuda_library targets.", providers = [_CudaInfo], aspects = [_ptx_aspect])},
)
