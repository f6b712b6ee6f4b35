"""Drains, requeues, hand-overs and ends of workers at random moments: no training step is lost.

A job's final weights must be those of a training that nothing disturbed.
"""

import os
import random
import signal
import time
import unittest

from tests.faults.upgrade_test import hand_over
from tests.support.cluster import ROOT, Cluster, shell_spec, training_spec, wait_until

STEPS = 500


class GracefulStops(unittest.TestCase):
    def start(self):
        seed = int(os.environ.get("MUSTER_TEST_SEED", random.randrange(1 << 32)))
        print(f"MUSTER_TEST_SEED={seed}", flush=True)
        self.random = random.Random(seed)
        self.cluster = self.enterContext(Cluster(nodes=3))

    def step_of(self, job):
        """The last step that is known to be complete."""
        return int(self.cluster.get(job).get("progress", {}).get("step", 0))

    def spec(self, name, **train):
        """A job on two of the three nodes; its only checkpoints are those of stops and of its end."""
        return training_spec(name, max_steps=STEPS, seed=1, resources={"nodes": 2, "ranks_per_node": 1},
                             checkpoint={"dir": str(self.cluster.directory / f"checkpoints-{name}")},
                             restart={"max": 0}, **train)

    def nodes_of(self, job):
        return sorted({rank["node"] for rank in self.cluster.describe(job)["ranks"]})

    # ---- stops; each returns when the job may continue

    def drain(self, job):
        node = self.random.choice(self.nodes_of(job))
        self.cluster.muster("node", "drain", node)
        self.wait_for_next_generation(job)
        self.cluster.muster("node", "uncordon", node)

    def requeue(self, job):
        self.cluster.muster("requeue", job)
        self.wait_for_next_generation(job)

    def end_worker(self, job):
        node = self.random.choice(self.nodes_of(job))
        self.cluster.workers[node].signal(signal.SIGTERM)
        self.wait_for_next_generation(job)
        self.cluster.workers[node].process.wait(30)
        self.cluster.start_worker(node)

    def requeue_twice(self, job):
        """The second stop comes while the ranks load their data, verify the checkpoint or connect."""
        self.requeue(job)
        self.generation = int(self.cluster.get(job)["generation"])
        time.sleep(self.random.uniform(0, 1))
        self.requeue(job)

    def hand_over(self, job):
        hand_over(self.cluster, self.random.choice(self.nodes_of(job)))

    def wait_for_next_generation(self, job):
        """Keeps the last reported step of the old generation."""
        def next_generation():
            state = self.cluster.get(job)
            if int(state["generation"]) == self.generation and state["state"] in ("RUNNING", "STOPPING"):
                self.reported = max(self.reported, self.step_of(job))
            return int(state["generation"]) > self.generation or state["state"] == "SUCCEEDED"
        wait_until(next_generation, 60, "the next generation")

    # ---- the test

    def stop_once(self, job, kind):
        """Returns whether the job was still training."""
        before = self.cluster.get(job)
        self.generation, self.reported = int(before["generation"]), self.step_of(job)
        kind(job)
        after = self.cluster.get(job)
        if after["state"] == "SUCCEEDED":
            return False
        self.assertNotIn("first_failure", after)
        if kind == self.hand_over:
            self.assertEqual(int(after["generation"]), self.generation)
        else:
            self.assertGreaterEqual(self.resumed_step(job), self.reported - 1)
        return True

    def resumed_step(self, job):
        return wait_until(lambda: int(self.cluster.get(job).get("checkpoint", {}).get("resumed_step", 0)), 30,
                          "the resumed step")

    def run_job(self, name, kinds, **train):
        """Stops one job until `kinds` is used up or the job is finished; returns its digest."""
        job = self.cluster.submit(self.spec(name, **train))
        wait_until(lambda: self.step_of(job) > 0, 60, "the first step")
        while kinds and self.step_of(job) < STEPS * 3 // 4:
            time.sleep(self.random.uniform(0, 0.7))  # the moment of a stop is random
            if self.stop_once(job, kinds[-1]):
                self.done.append(kinds.pop().__name__)
            else:
                break
            wait_until(lambda: self.trains(job), 60, "training")
        return self.check_finished(job)

    def trains(self, job):
        """Whether the job trains again, or has ended."""
        state = self.cluster.get(job)
        return state["state"] == "SUCCEEDED" or (
            state["state"] == "RUNNING" and state.get("progress", {}).get("phase") == "training")

    def check_finished(self, job):
        finished = self.cluster.wait(job)
        self.assertEqual(finished["state"], "SUCCEEDED", finished)
        self.assertEqual(int(finished["summary"]["steps"]), STEPS)
        return finished["summary"]["weights_digest"]

    def run_stops(self, count, **train):
        self.start()
        undisturbed = self.check_finished(self.cluster.submit(self.spec("undisturbed", **train)))
        every = [self.drain, self.requeue, self.end_worker, self.hand_over, self.requeue_twice]
        kinds = [every[i % len(every)] for i in range(count)]
        self.random.shuffle(kinds)
        self.done = []
        number = 0
        while kinds:
            number += 1
            self.assertEqual(self.run_job(f"stopped-{number}", kinds, **train), undisturbed, self.done)
        self.assertEqual(len(self.done), count)
        print({kind: self.done.count(kind) for kind in sorted(set(self.done))}, f"in {number} jobs", flush=True)


class GracefulStopTest(GracefulStops):
    def test_loses_no_step(self):
        self.run_stops(5)


class GracefulStopLongTest(GracefulStops):
    """Run by `tests/run.sh --full`."""

    def test_loses_no_step(self):
        self.run_stops(int(os.environ.get("MUSTER_STOPS", "50")))

    def test_loses_no_step_with_sharded_optimizer(self):
        self.run_stops(8, strategy={"name": "ddp", "shard_optimizer": True})

    def test_loses_no_step_with_pipeline(self):
        self.run_stops(8, strategy={"name": "pipeline", "pipeline": {"stages": 2}})


class PyTorchStopLongTest(GracefulStops):
    """The same guarantees for examples/resumable_ddp.py, which handles the stop signal. Run by `tests/run.sh --full`."""

    def output(self, name):
        return self.cluster.directory / f"output-{name}"

    def lines(self, job):
        """What rank 0 printed in all generations."""
        path = self.output(self.cluster.get(job)["spec"]["name"])
        return path.read_text().splitlines() if path.exists() else []

    def steps(self, job):
        return [int(line.split()[1]) for line in self.lines(job) if line.startswith("step ")]

    def spec(self, name, **top):
        script = f"/usr/bin/python3 {ROOT}/examples/resumable_ddp.py --steps {STEPS} --step-seconds 0.02"
        return shell_spec(name, f"[ $RANK != 0 ] || exec >> {self.output(name)}; exec {script}", nodes=2,
                          checkpoint_dir=str(self.cluster.directory / f"checkpoints-{name}"), grace_period="60s", **top)

    def step_of(self, job):
        return max(self.steps(job), default=0)

    def resumed_step(self, job):
        def resumed():
            found = [line for line in self.lines(job) if line.startswith("resumed after step ")]
            return len(found) > self.resumed and found
        found = wait_until(resumed, 60, "the resumed step")
        self.resumed = len(found)
        return int(found[-1].split()[-1])

    def requeue_twice(self, job):
        super().requeue_twice(job)
        # The rank that now starts has not printed yet whether it resumes.
        self.resumed = sum(line.startswith("resumed after step ") for line in self.lines(job))

    def trains(self, job):
        last = self.lines(job)[-1:]
        return self.cluster.get(job)["state"] == "SUCCEEDED" or (last and last[0].startswith("step "))

    def check_finished(self, job):
        """The digest is that of the weights, which the script prints at its end."""
        self.assertEqual(self.cluster.wait(job, timeout=300)["state"], "SUCCEEDED")
        self.assertEqual(sorted(set(self.steps(job))), list(range(1, STEPS + 1)))
        self.resumed = 0
        weights = self.lines(job)[-1]
        self.assertRegex(weights, r"^weights [0-9a-f]{64}$")
        return weights

    def test_loses_at_most_one_step(self):
        self.run_stops(int(os.environ.get("MUSTER_STOPS", "50")))


if __name__ == "__main__":
    unittest.main()
