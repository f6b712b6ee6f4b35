"""Kills, stops and ends processes of each kind at random moments, under a stream of jobs.

Afterwards every acknowledged call must have lasted, no two processes of a rank may ever have run at the same time, every
job must have ended well, and no process may be left.
"""

import contextlib
import os
import random
import signal
import time
import unittest

from tests.faults.clients import Clients
from tests.support.cluster import Cluster

NODES, SLOTS = 3, 2
FLAGS = ["--lease=2s", "--job-lease=3s", "--heartbeat-interval=200ms"]
# Longer than the lease: the job may be restarted elsewhere, but not while the stopped rank can continue.
LONGEST_STOP_SECONDS = 4


class RandomFaults(unittest.TestCase):
    def start(self):
        seed = int(os.environ.get("MUSTER_TEST_SEED", random.randrange(1 << 32)))
        print(f"MUSTER_TEST_SEED={seed}", flush=True)
        self.random = random.Random(seed)
        self.cluster = self.enterContext(Cluster(NODES, SLOTS, coordinator_flags=FLAGS))

    def kinds(self):
        return {"kill coordinator": self.kill_coordinator, "end coordinator": self.end_coordinator,
                "stop coordinator": self.stop_coordinator, "kill worker": self.kill_worker,
                "end worker": self.end_worker, "stop worker": self.stop_worker, "kill shim": self.kill_shim,
                "kill rank": self.kill_rank, "stop rank": self.stop_rank}

    # ---- faults

    def worker(self):
        return self.random.choice(sorted(self.cluster.workers))

    def pids(self, program):
        found = []
        for pid, command in self.cluster.processes():
            with contextlib.suppress(OSError):
                if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == program:
                    found.append(pid)
        return found

    def signal_one(self, program, number):
        if pids := self.pids(program):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.random.choice(pids), number)

    def pause(self, longest):
        time.sleep(self.random.uniform(0, longest))  # the moment and the length of a fault are random

    def stop_for_a_while(self, pid, longest):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        self.pause(longest)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def kill_coordinator(self):
        self.cluster.coordinator.kill()
        self.pause(0.5)
        self.cluster.start_coordinator()

    def end_coordinator(self):
        self.cluster.coordinator.stop()
        self.cluster.start_coordinator()

    def stop_coordinator(self):
        self.stop_for_a_while(self.cluster.coordinator.pid, LONGEST_STOP_SECONDS)

    def kill_worker(self):
        name = self.worker()
        self.cluster.workers[name].kill()
        self.pause(0.5)
        self.cluster.start_worker(name, SLOTS)

    def end_worker(self):
        name = self.worker()
        self.cluster.workers[name].stop()
        self.cluster.start_worker(name, SLOTS)

    def stop_worker(self):
        self.stop_for_a_while(self.cluster.workers[self.worker()].pid, LONGEST_STOP_SECONDS)

    def kill_shim(self):
        self.signal_one("muster-shim", signal.SIGKILL)

    def kill_rank(self):
        self.signal_one("sleep", signal.SIGKILL)

    def stop_rank(self):
        if pids := self.pids("bash"):
            self.stop_for_a_while(self.random.choice(pids), 1)

    # ---- the test

    def run_faults(self, count):
        self.start()
        kinds = self.kinds()
        done = dict.fromkeys(kinds, 0)
        shapes = ((1, 1), (1, 2), (2, 1), (3, 1), (2, 2))
        with Clients(self.cluster, self.random.randrange(1 << 32), shapes) as clients:
            for number in range(count):
                self.pause(0.3)
                kind = self.random.choice(sorted(kinds))
                kinds[kind]()
                done[kind] += 1
                self.assertEqual(clients.violations(), [])
                if number % 100 == 99:
                    print(f"{number + 1} faults, {clients.history.calls} acknowledged calls", flush=True)
        self.check_end(clients)
        print(f"{done}, {len(clients.history.acknowledged())} jobs, {clients.history.calls} calls", flush=True)

    def check_end(self, clients):
        self.cluster.wait_for_nodes(NODES)
        states = clients.wait_for_end()
        self.assertGreater(len(states), 5)
        self.assertEqual(clients.violations(), [])
        self.assertEqual(set(states.values()) - {"SUCCEEDED", "CANCELLED"}, set(), states)
        self.assertEqual([s for n in self.cluster.nodes() for s in n["slots"] if s.get("job_id")], [])


class RandomFaultsTest(RandomFaults):
    def test_keeps_guarantees(self):
        self.run_faults(25)


class RandomFaultsLongTest(RandomFaults):
    """Run by `tests/run.sh --full`: at least 1,000 faults."""

    def test_keeps_guarantees(self):
        self.run_faults(int(os.environ.get("MUSTER_FAULTS", "1200")))


if __name__ == "__main__":
    unittest.main()
