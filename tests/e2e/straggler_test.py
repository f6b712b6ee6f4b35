"""A rank that is slowed down is named while the training goes on, and a loss that is not finite is an event."""

import json
import re
import unittest

from tests.support.cluster import Cluster, shell_spec, training_spec, wait_until
from tests.support.slowed import Slowed

HEARTBEATS = ["--heartbeat-interval=250ms", "--lease=5s"]


class StragglerTest(unittest.TestCase):
    def setUp(self):
        self.cluster = self.enterContext(Cluster(nodes=2, coordinator_flags=HEARTBEATS))

    def events(self, job):
        return json.loads(self.cluster.muster("describe", job, "--events", "-o", "json").stdout)["events"]

    def test_names_slow_rank_until_it_is_fast_again(self):
        job = self.cluster.submit(training_spec(
            "slow", global_batch=32, max_steps=1_000_000, checkpoint={"keep": 0},
            resources={"nodes": 2, "ranks_per_node": 1}))
        self.cluster.wait_for_step(job, 100)
        slow = next(rank for rank in self.cluster.describe(job)["ranks"] if rank.get("rank", 0) == 1)

        def straggler():
            return [s for s in self.cluster.get(job).get("stragglers", []) if s.get("rank", 0) == 1]

        def named_at(slowdown):
            with Slowed(int(slow["pid"]), slowdown):
                try:
                    found = wait_until(straggler, 20, "the straggler")[0]
                except AssertionError:
                    return None
                return found, self.cluster.muster("why", job).stdout, self.cluster.muster("top", job, "--once").stdout

        # On a machine with other load the other rank is slowed down, too, and a process that was stopped is preferred.
        named = named_at(1.3) or named_at(5) or named_at(25)
        self.assertIsNotNone(named, "rank 1 was not named")
        found, why, top = named
        self.assertEqual((found["node"], found["phase"]), (slow["node"], "compute"))
        self.assertGreater(found["slowdown"], 1.1)
        self.assertRegex(why, rf"Slowest: rank 1 on {slow['node']} is \d+ % slower than the median of its peers in "
                              r"compute since step \d+; all ranks wait for it; now \d+ %; pid \d+, last report")
        self.assertRegex(top, rf"(?m)^  1 {slow['node']} .*(\d+%|\d+x) slow$")
        self.assertIn(found["message"], [e["message"] for e in self.events(job) if e["type"] == "StragglerFound"])
        wait_until(lambda: not straggler(), 30, "the end of the straggler")
        self.assertIn("StragglerEnded", [event["type"] for event in self.events(job)])
        self.cluster.muster("cancel", job, "--grace", "0s")

    def test_reports_loss_that_is_not_finite(self):
        diverging = self.cluster.submit(training_spec(
            "diverging", max_steps=200, optimizer={"name": "sgd", "learning_rate": 1e12}, checkpoint={"keep": 0},
            resources={"nodes": 2, "ranks_per_node": 1}))
        command = self.cluster.submit(shell_spec(
            "command", 'echo "step=3 loss=0.5" >> $MUSTER_PROGRESS; echo "step=4 loss=nan" >> $MUSTER_PROGRESS'))
        failed = self.cluster.wait(diverging, check=False)
        step = re.search(r"the loss of step (\d+) is (\S+): training diverged", failed["message"])
        self.assertIsNotNone(step, failed["message"])
        self.assertEqual(self.cluster.wait(command)["state"], "SUCCEEDED")
        messages = {job: [e["message"] for e in self.events(job) if e["type"] == "LossNotFinite"]
                    for job in (diverging, command)}
        self.assertEqual(messages[diverging], [f"the loss of step {step[1]} is {step[2]}"])
        self.assertEqual(messages[command], ["the loss of step 4 on rank 0 is nan"])


if __name__ == "__main__":
    unittest.main()
