"""The coordinator is killed again and again under a stream of calls, beside a training job on a core of its own."""

import os
import random
import statistics
import time
import unittest
import urllib.request

from tests.faults.clients import Clients
from tests.support.cluster import Cluster, training_spec, wait_until

KILLS = int(os.environ.get("MUSTER_KILLS", "200"))
WINDOWS = 10  # with kills, and as many without
SETTLE_STEPS = 200


class CoordinatorKillsLongTest(unittest.TestCase):
    def setUp(self):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            self.skipTest("the ranks and the control plane need separate cores")
        self.addCleanup(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, cores[1:])  # the coordinator, the clients and their jobs
        self.random = random.Random(int(os.environ.get("MUSTER_TEST_SEED", "1")))
        self.cluster = self.enterContext(Cluster(nodes=0))
        self.cluster.start_worker("node-1", 1, prefix=("taskset", "--cpu-list", str(cores[0])))
        self.cluster.wait_for_nodes(1)
        self.job = self.cluster.submit(training_spec("train", max_steps=10_000_000, grace_period="1s"))
        self.cluster.wait_for_step(self.job, SETTLE_STEPS)
        self.cluster.start_worker("node-2", 2)
        self.cluster.wait_for_nodes(2)

    def step(self):
        """The training's step, from its worker: the coordinator may be down."""
        address = self.cluster.workers["node-1"].addresses["http"]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith("muster_train_step{"))

    def rate(self, action):
        """Steps per second while `action` runs, counted between two changes of the step."""
        def next_step():
            old = self.step()
            wait_until(lambda: self.step() != old, 30, "a step")
            return self.step(), time.monotonic()
        first, started = next_step()
        action()
        last, ended = next_step()
        return (last - first) / (ended - started)

    def kill_coordinator(self, times):
        for _ in range(times):
            time.sleep(self.random.uniform(0, 0.5))  # kills at random moments
            self.cluster.coordinator.kill()
            self.cluster.start_coordinator()

    def test_nothing_acknowledged_is_lost_and_training_keeps_its_pace(self):
        ratios = []
        with Clients(self.cluster, seed=1, shapes=((1, 1), (1, 2))) as clients:
            for window in range(WINDOWS):
                started = time.monotonic()
                killed = self.rate(lambda: self.kill_coordinator(KILLS // WINDOWS))
                length = time.monotonic() - started
                calm = self.rate(lambda: time.sleep(length))
                ratios.append(killed / calm)
                print(f"window {window + 1}: {killed:.1f} steps/s with kills, {calm:.1f} without", flush=True)
                self.assertEqual(clients.violations(), [])
        job = self.cluster.get(self.job)
        self.assertEqual((job["state"], int(job["generation"])), ("RUNNING", 1))
        self.cluster.muster("cancel", self.job, "--grace", "0s")
        states = clients.wait_for_end()
        self.assertEqual(clients.violations(), [])
        self.assertEqual(set(states.values()) - {"SUCCEEDED", "CANCELLED"}, set(), states)
        print(f"{KILLS} kills, {len(states)} jobs, {clients.history.calls} acknowledged calls, "
              f"throughput ratio {statistics.median(ratios):.3f} (median of {WINDOWS})", flush=True)
        self.assertGreater(statistics.median(ratios), 0.97)


if __name__ == "__main__":
    unittest.main()
