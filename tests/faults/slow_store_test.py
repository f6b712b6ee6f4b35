"""A slow disk under the coordinator's store delays its answers; no node is lost and no rank is ended."""

import time
import unittest

from tests.support.cluster import Cluster, binary, shell_spec, wait_until

SYNC_SECONDS = 0.7


class SlowStoreTest(unittest.TestCase):
    def test_slow_store_costs_no_node(self):
        with Cluster(coordinator_flags=["--lease=2s", "--job-lease=4s", "--heartbeat-interval=300ms"]) as cluster:
            cluster.coordinator.stop()
            cluster.coordinator = None
            slow = dict(cluster.environment(), LD_PRELOAD=binary("tests/faults/libslow-disk.so"),
                        SLOW_PATH=str(cluster.directory / "coordinator"),
                        SLOW_SYNC_MICROSECONDS=str(int(SYNC_SECONDS * 1e6)))
            cluster.start_coordinator(env=slow)
            for name in ("node-1", "node-2"):
                cluster.start_worker(name)
            cluster.wait_for_nodes(2)
            done = cluster.directory / "done"
            long = cluster.submit(shell_spec("long", f"until [ -e {done} ]; do sleep 0.1; done"))
            cluster.wait_for_state(long, "RUNNING")
            ranks = [pid for pid, command in cluster.processes() if "until" in command]
            start = time.monotonic()
            first = cluster.submit(shell_spec("first", "true"))
            self.assertGreater(time.monotonic() - start, SYNC_SECONDS, "the disk is not slow")
            jobs = [first] + [cluster.submit(shell_spec(f"job-{i}", "true")) for i in range(8)]
            for job in jobs:
                self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
            wait_until(lambda: time.monotonic() > start + 8, 20, "several leases to be over")
            self.assertEqual({node["state"] for node in cluster.nodes()}, {"READY"})
            self.assertEqual([pid for pid, command in cluster.processes() if "until" in command], ranks)
            done.touch()
            finished = cluster.wait(long)
            self.assertEqual((finished["state"], int(finished["generation"])), ("SUCCEEDED", 1))


if __name__ == "__main__":
    unittest.main()
