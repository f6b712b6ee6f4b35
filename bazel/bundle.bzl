"""Relocatable tarballs of programs with the libraries that they need.

deploy/bundle/make_bundle.py documents the contents of a bundle.
"""

def _impl(ctx):
    programs = [program[DefaultInfo].files_to_run.executable for program in ctx.attr.programs]
    arguments = ctx.actions.args()
    arguments.add("-B")
    arguments.add(ctx.file._maker)
    arguments.add("--out", ctx.outputs.out)
    arguments.add("--launcher", ctx.file._launcher)
    arguments.add_all(programs, before_each = "--program")
    arguments.add_all(ctx.files.plugins, before_each = "--plugin")
    arguments.add_all(ctx.files._documents, before_each = "--document")
    arguments.add_all(ctx.files._archives, before_each = "--archive")
    ctx.actions.run(
        outputs = [ctx.outputs.out],
        # The package database represents the system's libraries, which are not declared as inputs.
        inputs = programs + ctx.files.plugins + ctx.files._documents + ctx.files._archives +
                 [ctx.file._maker, ctx.file._launcher] + ctx.files._packages,
        executable = "/usr/bin/python3",
        arguments = [arguments],
        # For dpkg, objdump, patchelf and strip.
        env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        mnemonic = "Bundle",
    )
    return [DefaultInfo(files = depset([ctx.outputs.out]), runfiles = ctx.runfiles([ctx.outputs.out]))]

bundle = rule(
    implementation = _impl,
    attrs = {
        "out": attr.output(mandatory = True, doc = "NAME.tar.xz; contains one folder with that NAME."),
        "programs": attr.label_list(doc = "Binaries, available under their names in bin/."),
        "plugins": attr.label_list(allow_files = True, doc = "Shared libraries that the programs open by name."),
        "_archives": attr.label(default = "@system//:archives", doc = "Libraries that the programs contain."),
        "_documents": attr.label_list(
            default = ["//:LICENSE", "//:THIRD_PARTY_NOTICES.md"],
            allow_files = True,
        ),
        "_launcher": attr.label(default = "//deploy/bundle:launcher", allow_single_file = True),
        "_maker": attr.label(default = "//deploy/bundle:make_bundle.py", allow_single_file = True),
        "_packages": attr.label(default = "@system//:packages", allow_files = True),
    },
)
