"""Packages of programs: relocatable tarballs, Python wheels and Debian packages.

The scripts that make them document their contents: deploy/bundle/make_bundle.py, deploy/python/make_wheel.py and
deploy/debian/make_packages.py.
"""

def _make(ctx, out, maker, inputs, arguments):
    """Runs the script `maker` with the options that all kinds of packages have, and `arguments`."""
    programs = [program[DefaultInfo].files_to_run.executable for program in ctx.attr.programs]
    common = ctx.actions.args()
    common.add("-B")
    common.add(maker)
    common.add("--out", out.path)
    common.add_all(programs, before_each = "--program")
    common.add_all(ctx.files.plugins, before_each = "--plugin")
    common.add_all(ctx.files._documents, before_each = "--document")
    ctx.actions.run(
        outputs = [out],
        # The package database represents the system's libraries, which are not declared as inputs.
        inputs = programs + ctx.files.plugins + ctx.files._documents + ctx.files._packages + ctx.files._shared +
                 [maker] + inputs,
        executable = "/usr/bin/python3",
        arguments = [common, arguments],
        # For dpkg, objdump, patchelf and strip.
        env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        mnemonic = "Package",
    )
    return [DefaultInfo(files = depset([out]), runfiles = ctx.runfiles([out]))]

_ATTRS = {
    "programs": attr.label_list(doc = "Binaries, available under their names."),
    "plugins": attr.label_list(allow_files = True, doc = "Shared libraries that the programs open by name."),
    "_archives": attr.label(default = "@system//:archives", doc = "Libraries that the programs contain."),
    "_documents": attr.label_list(
        default = ["//:LICENSE", "//:THIRD_PARTY_NOTICES.md"],
        allow_files = True,
    ),
    "_packages": attr.label(default = "@system//:packages", allow_files = True),
    "_shared": attr.label(default = "//deploy/bundle:libraries.py", allow_files = True),
}

def _attrs(**more):
    attrs = dict(_ATTRS)
    attrs.update(more)
    return attrs

def _bundle_impl(ctx):
    arguments = ctx.actions.args()
    arguments.add("--launcher", ctx.file._launcher)
    arguments.add_all(ctx.files._archives, before_each = "--archive")
    for target, path in ctx.attr.files.items():
        arguments.add("--file", target.files.to_list()[0], format = path + "=%s")
    inputs = ctx.files._archives + ctx.files.files + [ctx.file._launcher]
    return _make(ctx, ctx.outputs.out, ctx.file._maker, inputs, arguments)

bundle = rule(
    implementation = _bundle_impl,
    attrs = _attrs(
        out = attr.output(mandatory = True, doc = "NAME.tar.xz; contains one folder with that NAME."),
        files = attr.label_keyed_string_dict(allow_files = True, doc = "Other files, with their paths in the folder."),
        _launcher = attr.label(default = "//deploy/bundle:launcher", allow_single_file = True),
        _maker = attr.label(default = "//deploy/bundle:make_bundle.py", allow_single_file = True),
    ),
)

def _wheel_impl(ctx):
    arguments = ctx.actions.args()
    arguments.add("--version-header", ctx.file._version)
    arguments.add_all(ctx.files.modules, before_each = "--module")
    arguments.add_all(ctx.files._archives, before_each = "--archive")
    inputs = ctx.files.modules + ctx.files._archives + [ctx.file._version]
    return _make(ctx, ctx.actions.declare_directory(ctx.label.name), ctx.file._maker, inputs, arguments)

# A folder, because the file's name depends on the version and on the C library.
wheel = rule(
    implementation = _wheel_impl,
    attrs = _attrs(
        modules = attr.label_list(allow_files = True, doc = "Sources of the Python package."),
        _maker = attr.label(default = "//deploy/python:make_wheel.py", allow_single_file = True),
        _version = attr.label(default = "//common:version.h", allow_single_file = True),
    ),
)

def _debian_packages_impl(ctx):
    arguments = ctx.actions.args()
    arguments.add("--version-header", ctx.file._version)
    arguments.add("--cli-page", ctx.file._cli_page)
    arguments.add_all(ctx.files.srcs, before_each = "--source")
    arguments.add_all(ctx.files._archives, before_each = "--archive")
    inputs = ctx.files.srcs + ctx.files._archives + ctx.files._modules + [ctx.file._version, ctx.file._cli_page]
    return _make(ctx, ctx.actions.declare_directory(ctx.label.name), ctx.file._maker, inputs, arguments)

# A folder, because the files' names depend on the version and on the architecture.
debian_packages = rule(
    implementation = _debian_packages_impl,
    attrs = _attrs(
        srcs = attr.label_list(allow_files = True, doc = "Files that the packages contain or are described by."),
        _cli_page = attr.label(default = "//docs/reference:cli.md", allow_single_file = True),
        _maker = attr.label(default = "//deploy/debian:make_packages.py", allow_single_file = True),
        _modules = attr.label(default = "//deploy/debian:man_pages.py", allow_files = True),
        _version = attr.label(default = "//common:version.h", allow_single_file = True),
    ),
)
