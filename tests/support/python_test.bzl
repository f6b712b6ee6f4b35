"""Tests of real processes, written with Python's unittest and run by the system's Python."""

BINARIES = [
    "//cli:muster",
    "//coordinator:muster-coordinator",
    "//trainer:muster-rank",
    "//worker:muster-c10d-store",
    "//worker:muster-mpi",
    "//worker:muster-shim",
    "//worker:muster-worker",
]

def muster_python_test(name, src, cases = [], binaries = BINARIES, data = [], tags = [], size = "medium", exclusive = False):
    """Runs a unittest module with the built binaries; with `cases`, only those classes or tests.

    These tests start clusters of several processes, which mostly wait, so several tests run at once. A test that measures
    time is `exclusive`: it runs alone.
    """
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tests/support:python_test.sh"],
        args = ["$(location {})".format(src)] + cases,
        data = binaries + data + [src, "//tests/support:support"] + (["//tests/support:fashion_mnist"] if binaries else []),
        tags = tags + (["exclusive"] if exclusive else []),
    )

def muster_python_test_pair(name, src, cases, long_cases, long_size = "medium", **kwargs):
    """NAME_test runs `cases`; NAME_long_test runs `long_cases` and is left out of ordinary test runs."""
    muster_python_test(name = name + "_test", src = src, cases = cases, **kwargs)
    muster_python_test(
        name = name + "_long_test",
        src = src,
        cases = long_cases,
        size = long_size,
        tags = ["full"],
        **kwargs
    )
