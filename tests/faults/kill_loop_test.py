"""Mixed jobs while coordinator, workers, shims and ranks are killed and stopped at random, on nodes without control groups.

Afterwards every job must have ended well, with whole logs and, for a training, with the weights of an undisturbed run. No
two generations of a job may have run at the same time, orphans of killed shims included, and nothing may be left: no
process, slot, shared memory or descriptor.
"""

import glob
import os
import pathlib
import random
import re
import signal
import time
import unittest

from tests.faults.clients import RANK, Clients
from tests.faults.history import TERMINAL
from tests.faults.random_faults_test import FLAGS, NODES, SLOTS, RandomFaults
from tests.support import namespaces
from tests.support.cluster import Cluster, training_spec, wait_until

WHY_NO_MOUNTS = namespaces.why_not()
LINES = 50
# A process without its rank's environment, session and parent inherits the lock of the rank; then numbered lines.
SCRIPT = RANK.replace("sleep {seconds}\n", """
(env -i setsid sleep 1000 &)
for ((i = 1; i <= %d; i++)); do
  echo "line $MUSTER_GENERATION $RANK $i."
  ((i %% 10)) || sleep {seconds}e-1
done
""" % LINES)
SHAPES = ((1, 1), (1, 2), (2, 1), (3, 1), (2, 2))
TRAININGS = ({"nodes": 1, "ranks_per_node": 1}, {"nodes": 2, "ranks_per_node": 1})
MOST_TRAININGS = 2  # at the same time
MORE_DESCRIPTORS = 8  # connections that are about to be closed


@unittest.skipIf(WHY_NO_MOUNTS, WHY_NO_MOUNTS)
class KillLoop(RandomFaults):
    def start(self):
        seed = int(os.environ.get("MUSTER_TEST_SEED", random.randrange(1 << 32)))
        print(f"MUSTER_TEST_SEED={seed}", flush=True)
        self.random = random.Random(seed)
        self.cluster = self.enterContext(Cluster(coordinator_flags=FLAGS))
        hidden = self.cluster.resources.enter_context(namespaces.Mounts("mount -t tmpfs tmpfs /sys/fs/cgroup"))
        self.prefix, self.site, self.disk = hidden.prefix(), {}, None
        for i in range(NODES):
            self.start_worker(f"node-{i + 1}")
        self.cluster.wait_for_nodes(NODES)
        self.trainings = {}  # number of the shape by job
        self.references = [self.cluster.run(self.training(f"reference-{i}", i))["summary"]["weights_digest"]
                           for i in range(len(TRAININGS))]
        self.descriptors = self.count_descriptors()

    def start_worker(self, name):
        self.cluster.start_worker(name, SLOTS, prefix=self.prefix)

    def training(self, name, shape):
        return training_spec(name, max_steps=200, resources=TRAININGS[shape], restart={"max": 1000},
                             grace_period="1s", failure_timeout="2s",
                             checkpoint={"dir": str(self.cluster.directory / name), "every_steps": 20})

    def count_descriptors(self):
        return {daemon.name: len(os.listdir(f"/proc/{daemon.pid}/fd"))
                for daemon in (self.cluster.coordinator, *self.cluster.workers.values())}

    def kill_worker_and_shim(self):
        name = self.worker()
        self.cluster.workers[name].kill()
        self.signal_one(["muster-shim"], signal.SIGKILL)
        self.start_worker(name)
        return True

    def submit_training(self, clients):
        states = {job["job_id"]: job["state"] for job in clients.jobs}
        if sum(states.get(job) not in TERMINAL for job in self.trainings) >= MOST_TRAININGS:
            return
        number = len(self.trainings)
        spec = self.cluster.write_spec(self.training(f"training-{number}", number % len(TRAININGS)))
        result = wait_until(lambda: (r := self.cluster.muster(
            "submit", spec, "--idempotency-key", f"training-{number}", "-o", "name", check=False)).returncode == 0 and r,
            30, "the coordinator to accept a training")
        self.trainings[result.stdout.strip()] = number % len(TRAININGS)

    def run_for(self, seconds, most_logs=None):
        """Checks the logs of at most so many jobs, or of all."""
        self.start()
        faults = {kind: fault for kind, fault in self.kinds().items() if kind.startswith(("kill ", "stop "))}
        faults["kill worker and shim"] = self.kill_worker_and_shim
        faults["kill rank"] = lambda: self.signal_one(["bash", "muster-rank"], signal.SIGKILL)
        done = dict.fromkeys(faults, 0)
        deadline = time.monotonic() + seconds
        with Clients(self.cluster, self.random.randrange(1 << 32), SHAPES, script=SCRIPT) as clients:
            while time.monotonic() < deadline:
                self.pause(1)
                self.submit_training(clients)
                kind = self.random.choice(sorted(faults))
                done[kind] += faults[kind]()
                self.assertEqual(clients.violations(), [], kind)
        states = self.check_jobs(clients)
        succeeded = [job for job, state in states.items() if state == "SUCCEEDED"]
        lines = sum(self.check_log(job) for job in succeeded[:most_logs])
        self.check_nothing_left([*states, *self.trainings], clients)
        print(f"{sum(done.values())} faults {done}, {len(states)} command jobs, {len(self.trainings)} trainings, "
              f"{lines} lines, {clients.history.calls} calls", flush=True)

    # ---- afterwards

    def check_jobs(self, clients):
        self.cluster.wait_for_nodes(NODES)
        for node in self.cluster.nodes():  # the faults were not its own: launches on it may have failed
            self.cluster.muster("node", "uncordon", node["name"])
        states = clients.wait_for_end()
        self.assertEqual(clients.violations(), [])
        self.assertEqual(set(states.values()) - {"SUCCEEDED", "CANCELLED"}, set(), states)
        self.assertGreater(list(states.values()).count("SUCCEEDED"), 5)
        for name, shape in self.trainings.items():
            job = self.cluster.wait(name)
            self.assertEqual(job["state"], "SUCCEEDED", job)
            self.assertEqual(job["summary"]["weights_digest"], self.references[shape], job)
        self.assertTrue(self.trainings)
        return states

    def check_log(self, name):
        """The log of the last generation is whole; those of others are its beginning. Returns the number of lines."""
        job, count = self.cluster.describe(name), 0
        for generation in range(1, int(job["generation"]) + 1):
            result = self.cluster.muster("logs", name, "--generation", generation, check=False)
            if result.returncode != 0 and generation < int(job["generation"]):
                continue  # it may have ended before it started a rank
            lines = {}
            for found in re.finditer(r"line (\d+) (\d+) (\d+)\.$", result.stdout, re.M):
                self.assertEqual(int(found[1]), generation, result.stdout)
                lines.setdefault(int(found[2]), []).append(int(found[3]))
            for rank, numbers in lines.items():
                self.assertEqual(numbers, list(range(1, len(numbers) + 1)), f"{name} {generation} {rank}")
                count += len(numbers)
            if generation == int(job["generation"]):
                self.assertEqual({rank: len(numbers) for rank, numbers in lines.items()},
                                 dict.fromkeys(range(len(job["ranks"])), LINES), f"{name}: {result.stderr}")
        return count

    def check_nothing_left(self, jobs, clients):
        wait_until(lambda: not [s for n in self.cluster.nodes() for s in n["slots"] if s.get("job_id")], 30,
                   "all slots to be free")
        self.assertEqual(self.lock_holders(clients.marks), [])
        wait_until(lambda: all(count <= self.descriptors[name] + MORE_DESCRIPTORS
                               for name, count in self.count_descriptors().items()), 30,
                   f"as few descriptors as before: {self.descriptors}; now {self.count_descriptors()}")
        # A node that took no part in a job's end keeps what the job left there in memory, for at most ten minutes.
        for worker in self.cluster.workers.values():
            worker.stop()
        self.assertEqual([path for path in glob.glob("/dev/shm/muster-*/*") if os.path.basename(path) in jobs], [])

    def lock_holders(self, marks):
        """Processes of ranks, which hold files open, whatever their environment is."""
        holders = []
        for link in glob.glob("/proc/[0-9]*/fd/*"):
            try:
                if os.readlink(link).startswith(str(marks)):
                    holders.append(pathlib.Path(link).parts[2])
            except OSError:
                pass
        return holders


class KillLoopTest(KillLoop):
    def test_keeps_guarantees(self):
        self.run_for(10, most_logs=15)


class KillLoopLongTest(KillLoop):
    """Run by `tests/run.sh --full`."""

    def test_keeps_guarantees(self):
        self.run_for(float(os.environ.get("MUSTER_KILL_SECONDS", "300")))


if __name__ == "__main__":
    unittest.main()
