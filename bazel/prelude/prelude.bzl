"""prelude: system headers compiled once, which clang loads instead of parsing them again for every source.

A source is compiled with `-include-pch NAME.pch`, see //bazel:cc.bzl. It still includes what it uses.

The file must not depend on the directory of the workspace, or the objects of one clone would be of no use to another:
clang stores the paths of the working directory, the output and the main file. So it runs in /, writes to /tmp, and
compiles a header that is empty but for comments and macros which the compiler includes anyway.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

_MAIN_FILE = "/usr/include/stdc-predef.h"

def _impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    flags = ["-x", "c++-header", "-Xclang", "-fno-pch-timestamp"]
    for include in ctx.attr.includes:
        flags += ["-include", include]
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = _MAIN_FILE,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + flags,
        use_pic = True,
    )
    precompiled = ctx.actions.declare_file(ctx.label.name + ".pch")
    ctx.actions.run_shell(
        command = "out=$PWD/$1 && shift && tmp=$(mktemp /tmp/prelude.XXXXXX) && trap 'rm -f $tmp' EXIT && " +
                  "cd / && \"$@\" -o $tmp && cp $tmp $out",
        arguments = [
            precompiled.path,
            cc_common.get_tool_for_action(
                feature_configuration = features,
                action_name = CPP_COMPILE_ACTION_NAME,
            ),
        ] + cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        inputs = depset(ctx.files.data, transitive = [toolchain.all_files]),
        outputs = [precompiled],
        mnemonic = "PrecompileHeaders",
        progress_message = "Precompiling the headers of " + ctx.label.name,
    )
    files = depset([precompiled] + ctx.files.data)
    return [
        DefaultInfo(files = files),
        CcInfo(compilation_context = cc_common.create_compilation_context(headers = files)),
    ]

prelude = rule(
    implementation = _impl,
    attrs = {
        "data": attr.label_list(
            doc = "Files that change whenever the headers may have changed.",
            allow_files = True,
        ),
        "includes": attr.string_list(
            doc = "System headers, as in #include.",
            mandatory = True,
        ),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
