"""Networks are cut at random, in one direction or both, between machines that share nothing else.

A rank whose worker is cut off from the coordinator ends before the job starts elsewhere, as long as a path through
another worker exists.
"""

import contextlib
import itertools
import os
import pathlib
import random
import tempfile
import time
import unittest

from tests.faults.clients import Clients
from tests.support import namespaces
from tests.support.apart import ApartCluster

WHY_NOT = namespaces.why_not()
FLAGS = ["--lease=2s", "--job-lease=4s", "--heartbeat-interval=300ms"]
NODES = 3
LONGEST_CUT_SECONDS = 8


@unittest.skipIf(WHY_NOT, WHY_NOT)
class RandomCuts(unittest.TestCase):
    def run_cuts(self, count):
        seed = int(os.environ.get("MUSTER_TEST_SEED", random.randrange(1 << 32)))
        print(f"MUSTER_TEST_SEED={seed}", flush=True)
        choice = random.Random(seed)
        # Each machine has its own /tmp.
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(dir="/var/tmp", prefix="muster-cuts.")))
        cluster = self.enterContext(ApartCluster(NODES, slots=2, coordinator_flags=FLAGS))
        names = ["coordinator", *(f"node-{i + 1}" for i in range(NODES))]
        machines = [cluster.machine(name) for name in names]
        pairs = list(itertools.permutations(machines, 2))
        shapes = ((1, 1), (1, 2), (2, 1))
        with Clients(cluster, choice.randrange(1 << 32), shapes, folder) as clients:
            for number in range(count):
                a, b = choice.choice(pairs)
                ways = choice.choice((((a, b),), ((a, b), (b, a))))
                with contextlib.ExitStack() as healing:
                    for sender, receiver in ways:
                        sender.drop_to(receiver)
                        healing.callback(sender.deliver_to, receiver)
                    time.sleep(choice.uniform(0, LONGEST_CUT_SECONDS))  # the length of a fault is random
                time.sleep(choice.uniform(0, 1))
                text = " and ".join(f"{s.name} to {r.name}" for s, r in ways)
                print(f"cut {number + 1}: {text}; {clients.history.calls} calls", flush=True)
                self.assertEqual(clients.violations(), [])
        cluster.wait_for_nodes(NODES)
        states = clients.wait_for_end()
        self.assertEqual(clients.violations(), [])
        self.assertEqual(set(states.values()) - {"SUCCEEDED", "CANCELLED"}, set(), states)
        self.assertGreater(len(states), 5)


class RandomCutsTest(RandomCuts):
    def test_no_rank_runs_twice(self):
        self.run_cuts(3)


class RandomCutsLongTest(RandomCuts):
    def test_no_rank_runs_twice(self):
        self.run_cuts(int(os.environ.get("MUSTER_FAULTS", "100")))


if __name__ == "__main__":
    unittest.main()
