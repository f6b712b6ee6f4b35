"""@system//:NAME: one cc_library for each library that the operating system's packages provide.

Link options come from pkg-config if the library has a pkg-config file; the few others are defined by header and linker
flag. If a library is missing, the build stops and prints the command that installs it.
"""

# Target name -> pkg-config modules.
_PKG_CONFIG = {
    "absl": [
        "absl_algorithm_container",
        "absl_btree",
        "absl_cleanup",
        "absl_cord",
        "absl_flat_hash_map",
        "absl_flat_hash_set",
        "absl_inlined_vector",
        "absl_random_random",
        "absl_span",
        "absl_status",
        "absl_statusor",
        "absl_str_format",
        "absl_strings",
        "absl_synchronization",
        "absl_time",
    ],
    "benchmark": ["benchmark"],
    "crypto": ["libcrypto"],
    "glog": ["libglog"],
    "gmock": ["gmock"],
    "grpc++": ["grpc++"],
    "gtest": ["gtest"],
    "gtest_main": ["gmock_main"],
    "jpeg": ["libjpeg"],
    "prometheus": ["prometheus-cpp-core"],
    "protobuf": ["protobuf"],
    "sqlite3": ["sqlite3"],
    "ssl": ["libssl"],

    # libunwind-ptrace.so uses liblzma without listing it as a dependency.
    "unwind": [
        "libunwind-ptrace",
        "liblzma",
    ],
    "yaml-cpp": ["yaml-cpp"],
    "zlib": ["zlib"],
}

# Target name -> (a header that must exist, link options, other targets).
_BY_HEADER = {
    "cli11": ("/usr/include/CLI/CLI.hpp", [], []),
    "dl": ("/usr/include/dlfcn.h", ["-ldl"], []),
    "gloo": ("/usr/include/gloo/context.h", ["-lgloo"], []),
    "grpc++_reflection": ("/usr/include/grpcpp/ext/proto_server_reflection_plugin.h", ["-lgrpc++_reflection"], [":grpc++", ":protobuf"]),
    "nlohmann_json": ("/usr/include/nlohmann/json.hpp", [], []),
    "pthread": ("/usr/include/pthread.h", ["-lpthread"], []),
}

# Targets whose libraries programs contain (cc_program). As about 60 shared libraries they made up nine tenths of a start
# of `muster`: 13 ms, of which the dynamic linker took half and the kernel, which maps the files, a third. The others
# remain shared, so that the system's updates of OpenSSL and zlib apply.
_CONTAINED = ["absl", "grpc++", "grpc++_reflection", "protobuf", "yaml-cpp"]
_ALWAYS_SHARED = ["-lcrypto", "-lrt", "-lssl", "-lz"]

def _cc_library(name, linkopts, deps = []):
    return "cc_library(name = {}, linkopts = {}, deps = {})\n".format(repr(name), repr(linkopts), repr(deps))

def _missing(what):
    fail("{} is not installed; run deploy/install_dependencies.sh".format(what))

def _impl(ctx):
    pkg_config = ctx.which("pkg-config")
    if not pkg_config:
        _missing("pkg-config")
    folder = ctx.execute([pkg_config, "--variable=libdir", "absl_strings"]).stdout.strip()
    build = "package(default_visibility = ['//visibility:public'])\n"
    link_options = {}
    for name, modules in _PKG_CONFIG.items():
        result = ctx.execute([pkg_config, "--libs"] + modules)
        if result.return_code != 0:
            _missing("{} ({})".format(name, result.stderr.strip()))

        # Keeps only libraries and -pthread: absl's modules also add linker options that are not wanted here.
        flags = [f for f in result.stdout.strip().split(" ") if f.startswith("-l") or f.startswith("-L") or f == "-pthread"]
        link_options[name] = flags
        build += _cc_library(name, flags)
    for name, (header, linkopts, deps) in _BY_HEADER.items():
        if not ctx.path(header).exists:
            _missing("{} ({})".format(name, header))
        link_options[name] = linkopts
        build += _cc_library(name, linkopts, deps)

    contained = {flag: None for name in _CONTAINED for flag in link_options[name] if flag not in _ALWAYS_SHARED}
    for flag in contained:
        archive = "lib{}.a".format(flag[2:])
        if flag.startswith("-l") and ctx.path(folder + "/" + archive).exists:
            ctx.symlink(folder + "/" + archive, "archives/" + archive)
    build += "filegroup(name = 'archives', srcs = glob(['archives/*.a']))\n"

    # Rules that copy the libraries (bazel/packages.bzl) depend on this file, so that they run again after a package
    # update.
    build += "filegroup(name = 'packages', srcs = glob(['dpkg_status'], allow_empty = True))\n"
    if ctx.path("/var/lib/dpkg/status").exists:
        ctx.symlink("/var/lib/dpkg/status", "dpkg_status")
    ctx.file("BUILD", build)

system_libraries = repository_rule(
    implementation = _impl,
    configure = True,
    environ = ["PKG_CONFIG_PATH"],
)
