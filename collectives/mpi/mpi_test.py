"""The mpi backend in processes started by mpirun: the contract of all backends, groups, and the behaviour of the
other ranks when one is killed, stopped, absent or aborts."""

import base64
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from tests.support.daemon import binary

# Bazel variables that would make googletest write output files in every process.
OF_BAZEL = ("XML_OUTPUT_FILE", "TEST_PREMATURE_EXIT_FILE")
PLUGIN = "collectives/mpi/libmuster-mpi.so"


def why_not():
    """Reason to skip the tests on this machine, or None."""
    if shutil.which("mpirun") is None:
        return "no mpirun: install openmpi-bin"
    try:
        binary(PLUGIN)
    except FileNotFoundError:
        return "built without MPI: install libopenmpi-dev"
    return None


def mpirun(ranks, program, *args, env=None, timeout=120):
    """Runs `program` in `ranks` local processes, with stdout and stderr combined."""
    with tempfile.TemporaryDirectory(prefix="muster-mpi.", dir=os.environ.get("TEST_TMPDIR")) as keys:
        environment = {name: value for name, value in os.environ.items() if name not in OF_BAZEL}
        environment.update({"MUSTER_TEST_KEYS": keys, "MUSTER_MPI_PLUGIN": binary(PLUGIN)}, **(env or {}))
        argv = ["mpirun", "-n", str(ranks), "--allow-run-as-root", "--oversubscribe", binary(program), *args]
        start = time.monotonic()
        result = subprocess.run(argv, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                timeout=timeout, check=False, stdin=subprocess.DEVNULL)
        result.seconds = time.monotonic() - start
        result.ended = [path.read_text() for path in pathlib.Path(keys).glob("*/[!.]*")
                        if base64.urlsafe_b64decode(path.name + "=" * (-len(path.name) % 4)).startswith(b"ended/")]
        return result


@unittest.skipIf(why_not(), why_not())
class ContractTest(unittest.TestCase):
    CONTRACT = "collectives/contract_test"
    # A failure ends MPI in its process, so each case runs separately.
    FAILURES = ("*.RejectsInvalidArguments/*", "*.AbortEndsAllOperations/*")

    def test_contract_with_two_to_four_ranks(self):
        for ranks in (2, 3, 4):
            with self.subTest(ranks=ranks):
                result = mpirun(ranks, self.CONTRACT, f"--gtest_filter=-{':'.join(self.FAILURES)}")
                self.assertEqual(result.returncode, 0, result.stdout)
                # Results of all cases on all ranks.
                self.assertEqual(set(result.ended), {"OK"}, result.stdout)
                self.assertGreaterEqual(len(result.ended), 12 * ranks)

    def test_failure_contract(self):
        for case in self.FAILURES:
            with self.subTest(case=case):
                result = mpirun(4, self.CONTRACT, f"--gtest_filter={case}")
                self.assertEqual(result.ended, ["OK"] * 4, result.stdout)
                # Exit without MPI_Finalize, which mpirun reports as a failure.
                self.assertNotEqual(result.returncode, 0)


@unittest.skipIf(why_not(), why_not())
class RanksTest(unittest.TestCase):
    RANK = "collectives/mpi/testing/mpi_rank"

    def lines(self, result):
        """(milliseconds, status) of the ranks that printed a result."""
        found = re.findall(r"rank (\d+) after (\d+) ms: (.*)", result.stdout)
        return {int(rank): (int(time_ms), status) for rank, time_ms, status in found}

    def test_concurrent_groups(self):
        result = mpirun(4, self.RANK, "groups")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual({rank: status for rank, (_, status) in self.lines(result).items()}, {
            0: "UNKNOWN: mpi 6 1 2 place 1",
            1: "UNKNOWN: mpi 6 1 4 place 1",
            2: "UNKNOWN: mpi 6 5 2 place 0",
            3: "UNKNOWN: mpi 6 5 4 place 0",
        })

    def test_killed_rank_ends_others(self):
        result = mpirun(3, self.RANK, "killed", "60s")
        self.assertNotEqual(result.returncode, 0)
        self.assertLess(result.seconds, 10, result.stdout)
        self.assertIn("signal 9", result.stdout)

    def test_names_stopped_rank_and_ends_others(self):
        result = mpirun(3, self.RANK, "stopped", "2s")
        self.assertNotEqual(result.returncode, 0)
        self.assertLess(result.seconds, 20, result.stdout)
        lines = self.lines(result)
        # mpirun continues a stopped process before it ends it, which may give rank 2 time to print
        # its own line.
        _, resumed = lines.pop(2, (0, ""))
        self.assertNotIn("timed out after", resumed)
        self.assertTrue(lines, result.stdout)
        for _, status in lines.values():
            self.assertIn("DEADLINE_EXCEEDED: WORLD: timed out after 2s waiting for rank 2", status)

    def test_resumed_rank_attributes_failure_to_no_peer(self):
        result = mpirun(3, self.RANK, "resumed", "3s")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual({rank: status for rank, (_, status) in self.lines(result).items()},
                         {0: "OK", 1: "OK", 2: "OK"})

    def test_names_missing_rank(self):
        # MPI_Init waits for all processes, so it may time out first.
        result = mpirun(3, self.RANK, "absent", "2s")
        self.assertNotEqual(result.returncode, 0)
        self.assertLess(result.seconds, 20, result.stdout)
        lines = self.lines(result)
        self.assertTrue(lines, result.stdout)
        for _, status in lines.values():
            self.assertRegex(status, "DEADLINE_EXCEEDED: (WORLD: timed out after .* waiting for rank 2|mpi: MPI_Init)")

    def test_aborting_rank_ends_others(self):
        result = mpirun(3, self.RANK, "failed", "60s")
        self.assertEqual(result.returncode, 3, result.stdout)
        self.assertLess(result.seconds, 10, result.stdout)
        time_ms, status = self.lines(result)[2]
        self.assertIn("ABORTED: out of order", status)
        self.assertLess(time_ms, 5000)

    def test_reports_missing_library_in_one_line(self):
        result = mpirun(2, self.RANK, "killed", env={"MUSTER_MPI_PLUGIN": "/nowhere/libmuster-mpi.so"})
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("NOT_FOUND: mpi: no /nowhere/libmuster-mpi.so\n", result.stdout)


if __name__ == "__main__":
    unittest.main()
