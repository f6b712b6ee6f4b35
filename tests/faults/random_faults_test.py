"""Kills, stops and ends processes of each kind at random moments, under a stream of jobs, and takes their disk,
descriptors and time.

Afterwards every acknowledged call must have lasted, no two processes of a rank may ever have run at the same time, every
job must have ended well, and no process may be left.
"""

import contextlib
import os
import random
import resource
import signal
import time
import unittest

from tests.faults.clients import Clients
from tests.faults.disk_test import fill
from tests.support import namespaces
from tests.support.cluster import Cluster, binary, training_spec, wait_until

NODES, SLOTS = 3, 2
FLAGS = ["--lease=2s", "--job-lease=3s", "--heartbeat-interval=200ms"]
# Longer than the lease: the job may be restarted elsewhere, but not while the stopped rank can continue.
LONGEST_STOP_SECONDS = 4
# A stopped shim cannot end its rank before the lease ends. A tenth of the lease is left for that.
LONGEST_SHIM_STOP_SECONDS = 0.25
KILLS = ("kill coordinator", "kill worker", "kill shim", "kill rank")
WHY_NO_MOUNTS = namespaces.why_not()


class RandomFaults(unittest.TestCase):
    def start(self):
        seed = int(os.environ.get("MUSTER_TEST_SEED", random.randrange(1 << 32)))
        print(f"MUSTER_TEST_SEED={seed}", flush=True)
        self.random = random.Random(seed)
        self.cluster = self.enterContext(Cluster(coordinator_flags=FLAGS))
        self.site, self.disk = {}, None
        if not WHY_NO_MOUNTS:
            self.move_store()
        for i in range(NODES):
            self.start_worker(f"node-{i + 1}")
        self.cluster.wait_for_nodes(NODES)
        self.native = self.cluster.submit(training_spec(
            "native", max_steps=10_000_000, restart={"max": 1000}, grace_period="1s", failure_timeout="2s",
            checkpoint={"dir": str(self.cluster.directory / "checkpoints"), "every_steps": 20}))

    def move_store(self):
        """Moves the coordinator's data directory to a small disk."""
        self.cluster.coordinator.stop()
        self.cluster.coordinator = None
        folder = self.cluster.directory / "small"
        folder.mkdir()
        mounts = self.cluster.resources.enter_context(
            namespaces.Mounts(f"mount -t tmpfs -o size=64m,mode=700 tmpfs {folder}"))
        self.site = {"data_dir": folder, "prefix": mounts.prefix()}
        self.disk = mounts.path(folder)
        self.start_coordinator()

    def kinds(self):
        kinds = {"kill coordinator": self.kill_coordinator, "end coordinator": self.end_coordinator,
                 "stop coordinator": self.stop_coordinator, "kill worker": self.kill_worker,
                 "end worker": self.end_worker, "stop worker": self.stop_worker,
                 "kill shim": lambda: self.signal_one(["muster-shim"], signal.SIGKILL),
                 "end shim": lambda: self.signal_one(["muster-shim"], signal.SIGTERM), "stop shim": self.stop_shim,
                 "kill rank": lambda: self.signal_one(["sleep", "muster-rank"], signal.SIGKILL),
                 "end rank": lambda: self.signal_one(["sleep", "muster-rank"], signal.SIGTERM),
                 "stop rank": self.stop_rank, "slow disk": self.slow_disk,
                 "few descriptors of coordinator": self.take_coordinators_descriptors,
                 "few descriptors of worker": self.take_workers_descriptors}
        if self.disk is not None:
            kinds["full disk"] = self.fill_disk
        return kinds

    # ---- faults; each returns whether it happened

    def start_coordinator(self, **site):
        self.cluster.start_coordinator(**{**self.site, **site})

    def start_worker(self, name):
        self.cluster.start_worker(name, SLOTS)

    def worker(self):
        return self.random.choice(sorted(self.cluster.workers))

    def pids(self, programs):
        found = []
        for pid, command in self.cluster.processes():
            with contextlib.suppress(OSError):
                if os.path.basename(os.readlink(f"/proc/{pid}/exe")) in programs:
                    found.append(pid)
        return found

    def signal_one(self, programs, number):
        if pids := self.pids(programs):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.random.choice(pids), number)
                return True
        return False

    def pause(self, longest):
        time.sleep(self.random.uniform(0, longest))  # the moment and the length of a fault are random

    def stop_for_a_while(self, pid, longest):
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            return False
        self.pause(longest)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        return True

    def stop_one(self, programs, longest):
        pids = self.pids(programs)
        return bool(pids) and self.stop_for_a_while(self.random.choice(pids), longest)

    def kill_coordinator(self):
        self.cluster.coordinator.kill()
        self.pause(0.5)
        self.start_coordinator()
        return True

    def end_coordinator(self):
        self.cluster.coordinator.stop()
        self.start_coordinator()
        return True

    def stop_coordinator(self):
        return self.stop_for_a_while(self.cluster.coordinator.pid, LONGEST_STOP_SECONDS)

    def kill_worker(self):
        name = self.worker()
        self.cluster.workers[name].kill()
        self.pause(0.5)
        self.start_worker(name)
        return True

    def end_worker(self):
        name = self.worker()
        self.cluster.workers[name].stop()
        self.start_worker(name)
        return True

    def stop_worker(self):
        return self.stop_for_a_while(self.cluster.workers[self.worker()].pid, LONGEST_STOP_SECONDS)

    def stop_shim(self):
        return self.stop_one(["muster-shim"], LONGEST_SHIM_STOP_SECONDS)

    def stop_rank(self):
        return self.stop_one(["bash", "muster-rank"], 1)

    def slow_disk(self):
        slow = dict(self.cluster.environment(), LD_PRELOAD=binary("tests/faults/libslow-disk.so"),
                    SLOW_PATH=str(self.site.get("data_dir", self.cluster.directory / "coordinator")),
                    SLOW_SYNC_MICROSECONDS=str(self.random.randrange(50_000, 500_000)))
        self.cluster.coordinator.stop()
        self.start_coordinator(env=slow)
        self.pause(3)
        self.cluster.coordinator.stop()
        self.start_coordinator()
        return True

    def fill_disk(self):
        fill(self.disk)
        self.pause(2)
        (self.disk / "filler").unlink()
        return True

    def take_descriptors(self, pid):
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        few = len(os.listdir(f"/proc/{pid}/fd")) + self.random.randrange(4)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, hard))
        self.pause(2)
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        return True

    def take_coordinators_descriptors(self):
        return self.take_descriptors(self.cluster.coordinator.pid)

    def take_workers_descriptors(self):
        return self.take_descriptors(self.cluster.workers[self.worker()].pid)

    # ---- the test

    def ensure_coordinator(self):
        """An operator starts a coordinator that has ended because of its disk or its descriptors."""
        if self.cluster.coordinator.process.poll() is not None:
            self.start_coordinator()

    def run_faults(self, count, kills=0):
        """Causes at least `count` faults, `kills` of them SIGKILLs."""
        self.start()
        kinds = self.kinds()
        done = dict.fromkeys(kinds, 0)
        shapes = ((1, 1), (1, 2), (2, 1), (3, 1), (2, 2))

        def killed():
            return sum(done[kind] for kind in KILLS)
        with Clients(self.cluster, self.random.randrange(1 << 32), shapes) as clients:
            while sum(done.values()) < count or killed() < kills:
                self.pause(0.3)
                self.ensure_coordinator()
                choices = KILLS if self.random.random() < 0.5 else sorted(kinds)
                kind = self.random.choice(choices)
                done[kind] += kinds[kind]()
                self.assertEqual(clients.violations(), [], kind)
                if sum(done.values()) % 100 == 99:
                    print(f"{sum(done.values())} faults, {clients.history.calls} acknowledged calls", flush=True)
        self.ensure_coordinator()
        self.check_end(clients)
        print(f"{done}, {killed()} SIGKILLs, {len(clients.history.acknowledged())} jobs, "
              f"{clients.history.calls} calls", flush=True)
        self.assertGreaterEqual(killed(), kills)

    def check_end(self, clients):
        self.cluster.wait_for_nodes(NODES)
        for node in self.cluster.nodes():  # the faults were not its own: launches on it may have failed
            self.cluster.muster("node", "uncordon", node["name"])
        native = self.cluster.get(self.native)
        self.assertIn(native["state"], ("QUEUED", "STARTING", "RUNNING", "STOPPING"), native)
        self.cluster.muster("cancel", self.native, "--grace", "0s")
        states = clients.wait_for_end()
        self.assertGreater(len(states), 5)
        self.assertEqual(clients.violations(), [])
        self.assertEqual(set(states.values()) - {"SUCCEEDED", "CANCELLED"}, set(), states)
        wait_until(lambda: not [s for n in self.cluster.nodes() for s in n["slots"] if s.get("job_id")], 30,
                   "all slots to be free")


class RandomFaultsTest(RandomFaults):
    def test_keeps_guarantees(self):
        self.run_faults(40)


class RandomFaultsLongTest(RandomFaults):
    """Run by `tests/run.sh --full`: at least 1,000 SIGKILLs and about as many other faults."""

    def test_keeps_guarantees(self):
        kills = int(os.environ.get("MUSTER_KILLS", "1000"))
        self.run_faults(kills, kills)


if __name__ == "__main__":
    unittest.main()
