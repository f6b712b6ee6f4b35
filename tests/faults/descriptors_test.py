"""Daemons with few file descriptors: they refuse what they cannot serve, and recover when descriptors are free again."""

import contextlib
import os
import resource
import socket
import unittest

from tests.support.cluster import Cluster, shell_spec, wait_until


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def leave(pid, more):
    """Limits the process to `more` descriptors than it has."""
    limit = descriptors(pid) + more
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))
    return limit


class DescriptorsTest(unittest.TestCase):
    def test_coordinator_survives_more_connections_than_descriptors(self):
        with Cluster(nodes=1, slots=2) as cluster:
            done = cluster.directory / "done"
            running = cluster.submit(shell_spec("running", f"until [ -e {done} ]; do sleep 0.1; done"))
            cluster.wait_for_state(running, "RUNNING")
            limit = leave(cluster.coordinator.pid, 40)
            host, port = cluster.address.rsplit(":", 1)
            with contextlib.ExitStack() as connections:
                for _ in range(100):
                    connections.enter_context(socket.create_connection((host, int(port))))
                wait_until(lambda: descriptors(cluster.coordinator.pid) >= limit - 1, 10, "all descriptors to be used")
                done.touch()
            job = cluster.submit(shell_spec("after", "true"))
            self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
            finished = cluster.wait(running)
            self.assertEqual((finished["state"], int(finished["generation"])), ("SUCCEEDED", 1))

    def test_worker_reports_that_it_cannot_start_a_rank(self):
        with Cluster(nodes=1, slots=8) as cluster:
            leave(cluster.workers["node-1"].pid, 12)
            wide = cluster.submit(shell_spec("wide", "sleep 1", ranks=8, restart={"max": 0}))
            wait_until(lambda: "Too many open files" in cluster.get(wide)["message"], 30, "the reason")
            narrow = cluster.submit(shell_spec("narrow", "true"))
            cluster.muster("cancel", wide, "--grace", "0s")
            # Otherwise the node would be left out for a while.
            cluster.muster("node", "uncordon", "node-1")
            self.assertEqual(cluster.wait(narrow)["state"], "SUCCEEDED")
            self.assertEqual([n["state"] for n in cluster.nodes()], ["READY"])


if __name__ == "__main__":
    unittest.main()
