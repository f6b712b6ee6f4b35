"""fuzz_target."""

load("//bazel:cc.bzl", "cc_test")

def fuzz_target(name, deps, mutations = 10000, **kwargs):
    """A fuzz target: NAME.cc, which defines LLVMFuzzerTestOneInput, and its seeds in corpus/NAME.

    A test that runs the seeds and mutations of them, the same in each run. With --config=fuzz, a libFuzzer program: see
    tests/run.sh --fuzz.

    Args:
      name: name of the target, of its source without .cc, and of its folder of seeds.
      deps: of the native rule.
      mutations: number of inputs that the test derives from the seeds.
      **kwargs: of the native rule.
    """
    cc_test(
        name = name,
        srcs = [name + ".cc"],
        args = ["tests/fuzz/corpus/" + name, str(mutations)],
        data = native.glob(["corpus/" + name + "/*"]),
        main = True,
        deps = deps + [":driver"],
        **kwargs
    )
