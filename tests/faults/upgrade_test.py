"""Daemons are replaced one by one under a running job."""

import filecmp
import functools
import os
import signal
import unittest

from tests.faults.store_test import end, endless_spec, shell_pids
from tests.support.cluster import Cluster, binary, training_spec, wait_until


def hand_over(cluster, name, statuses=(0,)):
    """Makes the worker hand over to a successor, and exit with one of `statuses`."""
    worker = cluster.workers[name]
    worker.signal(signal.SIGUSR2)
    status = worker.process.wait(5)
    assert status in statuses, status
    cluster.start_worker(name)
    wait_until(lambda: any(n["name"] == name and n["state"] == "READY" and not n.get("conflict")
                           for n in cluster.nodes()), 20, f"{name} back")


class HandOverTest(unittest.TestCase):
    def test_ranks_survive_sigusr2(self):
        with Cluster(nodes=1) as cluster:
            job = cluster.submit(endless_spec(cluster, "handed"))
            step = int(cluster.wait_for_step(job, 3)["progress"]["step"])
            pids = shell_pids(cluster, "handed")
            hand_over(cluster, "node-1")
            self.assertEqual(shell_pids(cluster, "handed"), pids)
            cluster.wait_for_step(job, step + 5)
            end(cluster, "handed")
            finished = cluster.wait(job)
            self.assertEqual((finished["state"], int(finished["generation"])), ("SUCCEEDED", 1))
            self.assertNotIn("first_failure", finished)

    def test_exit_during_hand_over_is_reported(self):
        with Cluster(nodes=1) as cluster:
            job = cluster.submit(endless_spec(cluster, "late"))
            cluster.wait_for_step(job, 1)
            cluster.workers["node-1"].signal(signal.SIGUSR2)
            cluster.workers["node-1"].process.wait(5)
            end(cluster, "late")
            wait_until(lambda: not shell_pids(cluster, "late"), 10, "the rank has exited")
            cluster.start_worker("node-1")
            finished = cluster.wait(job)
            self.assertEqual((finished["state"], int(finished["generation"])), ("SUCCEEDED", 1))

    def test_training_job_loses_no_step(self):
        with Cluster(nodes=2) as cluster:
            job = cluster.submit(training_spec("rolling", max_steps=1200, resources={"nodes": 2, "ranks_per_node": 1},
                                               restart={"max": 0}, failure_timeout="20s"), "--set", "train.seed=1")
            cluster.wait_for_step(job, 50)
            ranks = sorted(cluster.rank_pids())
            cluster.coordinator.stop()
            cluster.start_coordinator()
            for name in ["node-1", "node-2"]:
                hand_over(cluster, name)
            self.assertEqual(sorted(cluster.rank_pids()), ranks)
            finished = cluster.wait(job)
            self.assertEqual((finished["state"], int(finished["generation"])), ("SUCCEEDED", 1))
            self.assertEqual(int(finished["summary"]["steps"]), 1200)
            self.assertEqual(int(finished["summary"].get("resumed_from_step", 0)), 0)


class MixedVersionsLongTest(unittest.TestCase):
    """Programs of this tree and of the previous commit work together. MUSTER_PREVIOUS is the other tree's bazel-bin."""

    def setUp(self):
        self.previous = os.environ.get("MUSTER_PREVIOUS", "")
        if not self.previous:
            self.skipTest("MUSTER_PREVIOUS is not set; tests/run.sh --full builds the previous commit")

    def old(self, program):
        return os.path.join(self.previous, program)

    def check_mixed_workers(self, cluster, name):
        """Jobs on an old worker, on both, and on a new one."""
        cluster.start_worker("node-1", program=self.old("worker/muster-worker"))
        cluster.wait_for_nodes(1)
        self.assertEqual(cluster.run(training_spec(f"{name}-old", max_steps=20))["state"], "SUCCEEDED")
        cluster.start_worker("node-2")
        cluster.wait_for_nodes(2)
        job = cluster.submit(endless_spec(cluster, name, nodes=2))
        cluster.wait_for_step(job, 3)
        end(cluster, name)
        self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
        cluster.muster("node", "cordon", "node-1")
        self.assertEqual(cluster.run(training_spec(f"{name}-new", max_steps=20))["state"], "SUCCEEDED")

    def test_mixed_workers_with_old_coordinator(self):
        cluster = Cluster()
        cluster.start_coordinator = functools.partial(cluster.start_coordinator,
                                                      program=self.old("coordinator/muster-coordinator"))
        with cluster:
            self.check_mixed_workers(cluster, "oldcoordinator")

    def test_mixed_workers_with_new_coordinator(self):
        with Cluster() as cluster:
            self.check_mixed_workers(cluster, "newcoordinator")

    def test_training_needs_one_build_of_the_trainer(self):
        with Cluster() as cluster:
            cluster.start_worker("node-1", program=self.old("worker/muster-worker"))
            cluster.start_worker("node-2")
            cluster.wait_for_nodes(2)
            job = cluster.run(training_spec("mixed", max_steps=20, resources={"nodes": 2, "ranks_per_node": 1}),
                              check=False)
            same = filecmp.cmp(self.old("trainer/muster-rank"), binary("trainer/muster-rank"), shallow=False)
            self.assertEqual((job["state"], job["reason"]),
                             ("SUCCEEDED", "Completed") if same else ("FAILED", "FingerprintMismatch"))

    def check_rolling_upgrade(self, *order):
        """Replaces the daemons in this order under a running job."""
        cluster = Cluster()
        first = functools.partial(cluster.start_coordinator, program=self.old("coordinator/muster-coordinator"))
        cluster.start_coordinator, start_new_coordinator = first, cluster.start_coordinator
        with cluster:
            for name in ["node-1", "node-2"]:
                cluster.start_worker(name, program=self.old("worker/muster-worker"))
            cluster.wait_for_nodes(2)
            job = cluster.submit(training_spec("upgraded", max_steps=2500, restart={"max": 0}, failure_timeout="20s",
                                               resources={"nodes": 2, "ranks_per_node": 1}))
            cluster.wait_for_step(job, 50)
            ranks = sorted(cluster.rank_pids())
            for name in order:
                if name == "coordinator":
                    cluster.coordinator.stop()
                    start_new_coordinator()
                    cluster.wait_for_nodes(2)
                else:
                    # The signal kills a worker of protocol version 1, whose ranks live on, too.
                    hand_over(cluster, name, statuses=(0, -signal.SIGUSR2))
            self.assertEqual(sorted(cluster.rank_pids()), ranks)
            finished = cluster.wait(job, timeout=300)
            self.assertEqual((finished["state"], int(finished["generation"])), ("SUCCEEDED", 1))
            self.assertEqual(int(finished["summary"]["steps"]), 2500)

    def test_rolling_upgrade_coordinator_first(self):
        self.check_rolling_upgrade("coordinator", "node-1", "node-2")

    def test_rolling_upgrade_workers_first(self):
        self.check_rolling_upgrade("node-1", "node-2", "coordinator")
