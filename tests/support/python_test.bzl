"""Tests of real processes, written with Python's unittest and run by the system's Python."""

BINARIES = [
    "//cli:muster",
    "//coordinator:muster-coordinator",
    "//trainer:muster-rank",
    "//worker:muster-shim",
    "//worker:muster-worker",
]

def muster_python_test(name, src, cases = [], binaries = BINARIES, data = [], tags = [], size = "medium", exclusive = True):
    """Runs a unittest module with the built binaries; with `cases`, only those classes or tests.

    These tests start clusters of several processes and measure time, so by default each runs exclusively.
    """
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tests/support:python_test.sh"],
        args = ["$(location {})".format(src)] + cases,
        data = binaries + data + [src, "//tests/support:support"],
        tags = tags + (["exclusive"] if exclusive else []),
    )
