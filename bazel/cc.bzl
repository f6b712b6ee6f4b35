"""cc_library, cc_binary, cc_program and cc_test as this tree uses them: with Abseil and the precompiled headers of //bazel/prelude."""

load("@rules_cc//cc:defs.bzl", _cc_binary = "cc_binary", _cc_library = "cc_library", _cc_test = "cc_test")

# Nearly all sources use Abseil, so BUILD files need not list it.
_ABSL = "@system//:absl"

def _with_prelude(name, kwargs):
    kwargs = dict(kwargs)
    deps = kwargs.get("deps", [])
    if type(deps) != "list" or _ABSL not in deps:
        kwargs["deps"] = deps + [_ABSL]
    if not [src for src in kwargs.get("srcs", []) if src.endswith(".cc")]:
        return kwargs
    copts = kwargs.get("copts", [])

    # A precompiled header serves one instruction set.
    if [option for option in copts if option.startswith("-m")]:
        name = "no_prelude"
    else:
        kwargs["copts"] = ["-include-pch", "$(BINDIR)/bazel/prelude/{}.pch".format(name)] + copts
    kwargs["deps"] = kwargs["deps"] + ["//bazel/prelude:" + name]
    return kwargs

def cc_library(**kwargs):
    _cc_library(**_with_prelude("prelude", kwargs))

def cc_binary(**kwargs):
    _cc_binary(**_with_prelude("prelude", kwargs))

def cc_program(linkopts = [], **kwargs):
    """cc_binary for a program that users or daemons start; contains its libraries as far as @system//:archives has them.

    Args:
      linkopts: of the native rule.
      **kwargs: of the native rule.
    """
    cc_binary(
        additional_linker_inputs = ["@system//:archives"],
        linkopts = ["-Lexternal/system/archives"] + linkopts,
        **kwargs
    )

def cc_test(main = False, **kwargs):
    """cc_test of GoogleTest; `size` is "small" by default.

    Args:
      main: whether srcs define main().
      **kwargs: of the native rule.
    """
    kwargs = _with_prelude("test_prelude", kwargs)
    kwargs["deps"] = kwargs.get("deps", []) + ["@system//:gtest" if main else "@system//:gtest_main"]
    kwargs.setdefault("size", "small")
    _cc_test(**kwargs)
