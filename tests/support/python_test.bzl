"""Tests of real processes, written with Python's unittest and run by the system's own Python."""

BINARIES = [
    "//cli:muster",
    "//coordinator:muster-coordinator",
    "//trainer:muster-rank",
    "//worker:muster-shim",
    "//worker:muster-worker",
]

def muster_python_test(name, src, cases = [], binaries = BINARIES, data = [], tags = [], size = "medium", exclusive = True):
    """One unittest module against the built binaries; with `cases`, those classes or tests of it alone.

    Such tests start clusters of several processes and watch the clock, so by default each runs alone.
    """
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tests/support:python_test.sh"],
        args = ["$(location {})".format(src)] + cases,
        data = binaries + data + [src, "//tests/support:support"],
        tags = tags + (["exclusive"] if exclusive else []),
    )
