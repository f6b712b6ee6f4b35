"""A rank whose process outlives SIGKILL: its job ends without it, and its slot is not used until it ends."""

import ctypes
import os
import unittest

from tests.support.cluster import Cluster, shell_spec, wait_until

PTRACE_SEIZE = 0x4206
WAIT_ALL = 0x40000000  # __WALL


def trace(pid):
    """Make a process unkillable: until this thread, its tracer, reaps it, it stays a zombie that its parent cannot reap."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_SEIZE, pid, None, None) != 0:
        raise unittest.SkipTest(f"processes cannot be traced here: {os.strerror(ctypes.get_errno())}")


class UnkillableTest(unittest.TestCase):
    def test_job_ends_without_rank(self):
        with Cluster(nodes=1, slots=2) as cluster:
            job = cluster.submit(shell_spec("stuck", "exec sleep 1000"))
            cluster.wait_for_state(job, "RUNNING")
            pid = int(cluster.describe(job)["ranks"][0]["pid"])
            trace(pid)
            cluster.muster("cancel", job, "--grace", "0s")
            finished = cluster.wait(job, check=False)
            self.assertEqual(finished["state"], "CANCELLED")
            what = f"unkillable rank 0 of {job}, pid {pid}"
            self.assertIn(what, cluster.muster("node", "describe", "node-1").stdout)
            self.assertIn("Rank 0 on node-1 outlived SIGKILL", cluster.muster("why", job).stdout)
            self.assertIn("RankUnkillable", cluster.muster("describe", job, "--events").stdout)

            other = cluster.run(shell_spec("other", "exit 0"))
            self.assertEqual(other["state"], "SUCCEEDED")
            large = cluster.submit(shell_spec("large", "exit 0", ranks=2))
            self.assertIn(what, cluster.muster("why", large).stdout)
            os.waitpid(pid, WAIT_ALL)
            self.assertEqual(cluster.wait(large)["state"], "SUCCEEDED")
            wait_until(lambda: what not in cluster.muster("node", "describe", "node-1").stdout, 10, "the slot to return")


if __name__ == "__main__":
    unittest.main()
