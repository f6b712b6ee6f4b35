"""kill -9 of each kind of process during training: the job ends SUCCEEDED, and the cause is recorded."""

import glob
import json
import os
import re
import signal
import time
import unittest
import urllib.request

from tests.support.cluster import Cluster, training_spec, wait_until

STEPS = 600


def fault_spec(cluster, name):
    """Return a spec for two nodes with a checkpoint directory each, long enough to be killed midway."""
    return training_spec(
        name, max_steps=STEPS,
        checkpoint={"dir": str(cluster.directory / "ckpt-{node}"), "every_steps": 50},
        resources={"nodes": 2, "ranks_per_node": 1}, restart={"max": 3}, failure_timeout="10s",
        grace_period="5s")


class KillTest(unittest.TestCase):
    def check_finished(self, cluster, job, generation, steps=STEPS):
        finished = cluster.wait(job)
        self.assertEqual(finished["state"], "SUCCEEDED", finished)
        self.assertEqual(int(finished["generation"]), generation)
        self.assertEqual(int(finished["summary"]["steps"]), steps)
        return finished

    def check_no_step_lost(self, cluster, finished, reached, generation=1):
        """The job went on from the memory of the surviving node, not from its last checkpoint."""
        self.assertGreaterEqual(int(finished["summary"]["resumed_from_step"]), reached)
        self.assertEqual(finished["checkpoint"]["resumed_from"], "memory of node-1")
        log = cluster.muster("logs", finished["job_id"], "--generation", str(generation)).stdout
        self.assertRegex(log, r"kept the state of step \d+ in memory in 0\.\d\d s for the next generation")
        self.assertEqual(glob.glob(f"/dev/shm/muster-*/{finished['job_id']}/*"), [])

    def test_job_succeeds_after_rank_is_killed(self):
        with Cluster(nodes=2) as cluster:
            job = cluster.submit(fault_spec(cluster, "rank"))
            reached = int(cluster.wait_for_step(job, 160)["progress"]["step"])
            os.kill(cluster.rank_pids("node-2")[0], signal.SIGKILL)
            finished = self.check_finished(cluster, job, 2)
            self.check_no_step_lost(cluster, finished, reached)
            failure = finished["first_failure"]
            self.assertEqual(failure["node"], "node-2")
            self.assertEqual(int(failure["exit"]["signal"]), 9)
            self.assertEqual(int(failure["generation"]), 1)
            self.check_goodput(cluster, job)

    def check_goodput(self, cluster, job):
        """The time of a job that failed once is divided among the causes."""
        goodput = cluster.describe(job)["goodput"]
        seconds = {cause["cause"]: float(cause["wall_time"].rstrip("s")) for cause in goodput["causes"]}
        self.assertAlmostEqual(sum(seconds.values()), float(goodput["wall_time"].rstrip("s")), 6)
        for cause in ("starting", "productive", "recovery"):
            self.assertGreater(seconds.get(cause, 0), 0, goodput)
        self.assertNotIn("lost_to_node", seconds)
        shown = cluster.muster("describe", job).stdout
        self.assertRegex(shown, r"(?m)^Goodput: +\d+\.\d %, .* productive of .* with slots$")
        self.assertRegex(shown, r"(?m)^ +\S.* %  recovery$")
        report = json.loads(cluster.muster("report", "-o", "json").stdout)["total"]
        self.assertIn("recovery", [cause["cause"] for cause in report["causes"]])
        metrics = urllib.request.urlopen(f"http://{cluster.coordinator.addresses['http']}/metrics", timeout=5)
        self.assertIn(b'muster_job_slot_seconds_total{cause="recovery"}', metrics.read())

    def test_job_on_one_node_loses_no_step(self):
        """Its ranks share memory, and each has a part of the optimizer's states."""
        with Cluster(nodes=1, slots=3) as cluster:
            job = cluster.submit(training_spec("one", max_steps=400, resources={"nodes": 1, "ranks_per_node": 3},
                                               restart={"max": 3}, record_losses=True))
            for generation, pid in ((1, 1), (2, 0)):
                reached = wait_until(lambda g=generation: self.step_in(cluster, job, g, 100 * g), 30, "steps")
                os.kill(cluster.rank_pids()[pid], signal.SIGKILL)
            finished = self.check_finished(cluster, job, 3, steps=400)
            self.check_no_step_lost(cluster, finished, reached, generation=2)

    def step_in(self, cluster, job, generation, step):
        """The last step of the generation if it has come that far."""
        status = cluster.get(job)
        reached = int(status.get("progress", {}).get("step", 0))
        return reached if int(status["generation"]) == generation and reached >= step else None

    def test_resumes_from_checkpoint_of_another_rank(self):
        """The only checkpoint is on the node of rank 1 in the next generation: that rank reads it for all ranks."""
        with Cluster(nodes=2, worker_flags=["--memory-dir=none"]) as cluster:
            job = cluster.submit(fault_spec(cluster, "moved"))
            cluster.wait_for_step(job, 150)
            cluster.start_worker("node-0")  # comes before node-1 in every rank map
            cluster.wait_for_nodes(3)
            os.kill(cluster.rank_pids("node-2")[0], signal.SIGKILL)
            finished = self.check_finished(cluster, job, 2)
            self.assertGreaterEqual(int(finished["summary"]["resumed_from_step"]), 100)
            ranks = {int(r.get("rank", 0)): r["node"] for r in cluster.describe(job)["ranks"]}
            self.assertEqual(ranks, {0: "node-0", 1: "node-1"})
            last = f"step-{STEPS:08d}.g2"
            self.assertTrue((cluster.directory / "ckpt-node-0" / last).is_dir())
            self.assertFalse((cluster.directory / "ckpt-node-1" / last).exists())

    def test_job_succeeds_after_worker_and_ranks_are_killed(self):
        with Cluster(nodes=2) as cluster:
            job = cluster.submit(fault_spec(cluster, "node"))
            reached = int(cluster.wait_for_step(job, 160)["progress"]["step"])
            where = str(cluster.directory / "node-2")
            cluster.workers["node-2"].kill()
            for pid, command in cluster.processes():
                if where in command or pid in cluster.rank_pids("node-2"):
                    os.kill(pid, signal.SIGKILL)
            killed = time.monotonic()
            queued = cluster.wait_for_state(job, "QUEUED", timeout=3)
            self.assertEqual(queued["reason"], "NodeLost")
            self.assertEqual(int(queued["queue_position"]), 1)
            wait_until(lambda: time.monotonic() - killed > 3, 5, "three seconds")
            self.assertEqual(cluster.get(job)["state"], "QUEUED")
            cluster.start_worker("node-2")
            finished = self.check_finished(cluster, job, 2)
            self.assertEqual(finished["first_failure"]["reason"], "NodeLost")
            self.assertEqual(finished["first_failure"]["node"], "node-2")
            self.check_no_step_lost(cluster, finished, reached)

    def test_ranks_survive_killed_worker(self):
        """Its ranks are not affected, and the restarted worker adopts them."""
        with Cluster(nodes=2) as cluster:
            job = cluster.submit(fault_spec(cluster, "worker"))
            cluster.wait_for_step(job, 150)
            ranks = cluster.rank_pids()
            cluster.workers["node-2"].kill()
            cluster.start_worker("node-2")
            self.assertEqual(sorted(cluster.rank_pids()), sorted(ranks))
            finished = self.check_finished(cluster, job, 1)
            self.assertNotIn("first_failure", finished)
            events = json.dumps(json.loads(cluster.muster("describe", job, "--events", "-o", "json").stdout))
            self.assertIn("node-2", events)

    def test_ranks_survive_killed_coordinator(self):
        """The ranks keep training without it; restarted 3 s later, it adopts them."""
        with Cluster(nodes=2) as cluster:
            job = cluster.submit(fault_spec(cluster, "coord"))
            before = int(cluster.wait_for_step(job, 100)["progress"]["step"])
            ranks = cluster.rank_pids()
            cluster.coordinator.kill()
            killed = time.monotonic()
            worker_http = cluster.workers["node-1"].addresses["http"]

            def step():
                text = urllib.request.urlopen(f"http://{worker_http}/metrics", timeout=5).read().decode()
                found = re.search(r"(?m)^muster_train_step\{.*\} ([0-9.e+]+)$", text)
                return float(found.group(1)) if found else 0
            wait_until(lambda: step() > before + 50, 10, "steps without a coordinator")
            wait_until(lambda: time.monotonic() - killed > 3, 5, "three seconds")
            cluster.start_coordinator()
            finished = self.check_finished(cluster, job, 1)
            self.assertNotIn("first_failure", finished)
            self.assertTrue(ranks)
