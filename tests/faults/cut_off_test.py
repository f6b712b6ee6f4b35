"""Command jobs on nodes that are cut off run once at a time, and survive the loss of the coordinator alone.

Machines in network namespaces share only a bridge and a folder, in which each rank writes the times at which it lives.
The long cases repeat each fault: MUSTER_CUTS, MUSTER_KILLS and MUSTER_LINK_LOSSES times.
"""

import contextlib
import itertools
import os
import pathlib
import random
import tempfile
import time
import unittest

from tests.support import namespaces
from tests.support.apart import ApartCluster
from tests.support.cluster import shell_spec, wait_until

WHY_NOT = namespaces.why_not()
JOB_LEASE = 5
FLAGS = ["--lease=2s", f"--job-lease={JOB_LEASE}s", "--heartbeat-interval=300ms"]
NODES = 4
JOBS = 3
# A job that loses its node over and over again is started again after longer and longer delays.
LOSSES_OF_A_JOB = 5

BEATS = """
    trap '' TERM
    exec >> {folder}/$MUSTER_JOB_ID-$MUSTER_GENERATION
    while :; do date +%s.%N; sleep 0.02; done"""


@unittest.skipIf(WHY_NOT, WHY_NOT)
class CutOff(unittest.TestCase):
    def setUp(self):
        seed = int(os.environ.get("MUSTER_TEST_SEED", random.randrange(1 << 32)))
        print(f"MUSTER_TEST_SEED={seed}", flush=True)
        self.choice = random.Random(seed)
        # Each machine has its own /tmp.
        self.folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory(dir="/var/tmp", prefix="muster-cut-off.")))
        self.cluster = self.enterContext(ApartCluster(NODES, slots=1, coordinator_flags=FLAGS))
        self.submit_jobs()

    def tearDown(self):
        self.cancel_jobs()

    def submit_jobs(self):
        self.jobs = [self.cluster.submit(shell_spec(f"job-{i}", BEATS.format(folder=self.folder),
                                                    failure_timeout=f"{JOB_LEASE}s")) for i in range(JOBS)]
        self.wait_until_all_run()

    def cancel_jobs(self):
        for job in self.jobs:
            self.cluster.muster("cancel", job, "--grace", "0s", check=False)

    def wait_until_all_run(self):
        self.cluster.wait_for_nodes(NODES, timeout=60)
        for job in self.jobs:
            self.cluster.wait_for_state(job, "RUNNING", timeout=60)

    def machine(self, name):
        return self.cluster.machine(name)

    def node_of(self, job):
        return self.cluster.describe(job)["ranks"][0]["node"]

    def generation(self, job):
        return int(self.cluster.get(job)["generation"])

    def lives(self, job):
        """First and last beat of each generation."""
        lives = {}
        for path in self.folder.glob(f"{job}-*"):
            beats = [float(line) for line in path.read_text().split("\n")[:-1]]
            if beats:
                lives[int(path.name.rsplit("-", 1)[1])] = (beats[0], beats[-1])
        return lives

    def check_once_at_a_time(self):
        for job in self.jobs:
            for (number, earlier), (_, later) in itertools.pairwise(sorted(self.lives(job).items())):
                self.assertLess(earlier[1], later[0], f"generation {number} of {job} ran beside the next")

    @contextlib.contextmanager
    def cut(self, side, ways=(True, True)):
        """Drops packets between `side` and all other machines: from it, to it."""
        names = ["coordinator", *(f"node-{i + 1}" for i in range(NODES))]
        with contextlib.ExitStack() as healing:
            for name, other in itertools.product(side, set(names) - set(side)):
                for a, b, cut in ((name, other, ways[0]), (other, name, ways[1])):
                    if cut:
                        self.machine(a).drop_to(self.machine(b))
                        healing.callback(self.machine(a).deliver_to, self.machine(b))
            yield

    def cut_and_heal(self, pick_side, ways=lambda: (True, True), count=1):
        for number in range(count):
            if number > 0 and number % LOSSES_OF_A_JOB == 0:
                self.cancel_jobs()
                self.submit_jobs()
            before = {job: self.generation(job) for job in self.jobs}
            side = pick_side()
            with self.cut(side, ways()):
                # Until after the lease: some ranks end, and the coordinator starts their jobs elsewhere.
                time.sleep(JOB_LEASE + self.choice.uniform(0, 4))  # the length of a fault is random
            self.wait_until_all_run()
            self.check_once_at_a_time()
            moved = [job for job in self.jobs if self.generation(job) > before[job]]
            print(f"cut {number + 1} of {', '.join(side)}: {len(moved)} jobs started again", flush=True)
        return moved

    def some_job_node(self):
        return [self.node_of(self.choice.choice(self.jobs))]

    def half(self):
        return self.choice.sample([f"node-{i + 1}" for i in range(NODES)], NODES // 2)

    def one_way(self):
        return self.choice.choice(((True, False), (False, True)))

    def check_all_continue(self, stop, start, count):
        for number in range(count):
            before = {job: self.generation(job) for job in self.jobs}
            stop()
            time.sleep(2.5 * JOB_LEASE)  # several leases
            start()
            self.wait_until_all_run()
            now = time.time()
            wait_until(lambda: all(self.lives(job)[before[job]][1] > now for job in self.jobs), 20, "further beats")
            self.assertEqual({job: self.generation(job) for job in self.jobs}, before)
            print(f"loss {number + 1} of the coordinator", flush=True)

    def kill_coordinator(self, count):
        self.check_all_continue(lambda: self.cluster.coordinator.kill(), self.cluster.start_coordinator, count)

    def lose_link(self, count):
        machine = self.machine("coordinator")
        self.check_all_continue(machine.cut, machine.heal, count)


class CutOffTest(CutOff):
    def test_cut_off_node(self):
        self.assertEqual(len(self.cut_and_heal(self.some_job_node)), 1)

    def test_half_of_the_nodes(self):
        self.cut_and_heal(self.half)

    def test_one_direction(self):
        self.cut_and_heal(self.some_job_node, self.one_way)

    def test_killed_coordinator_ends_no_rank(self):
        self.kill_coordinator(1)

    def test_lost_link_of_coordinator_ends_no_rank(self):
        self.lose_link(1)

    def test_operator_confirms_loss(self):
        """Three of four nodes are cut off, each from all: nobody can ban the ranks of the others."""
        job = self.jobs[0]
        side = [f"node-{i + 1}" for i in range(NODES) if f"node-{i + 1}" != self.node_of(job)][:1]
        lost = [self.node_of(job), *[f"node-{i + 1}" for i in range(NODES)
                                     if f"node-{i + 1}" not in (*side, self.node_of(job))]]
        for name in lost:
            self.machine(name).cut()
        wait_until(lambda: "NodeSilent" in self.cluster.muster("describe", job, "--events").stdout, 30, "the event NodeSilent")
        why = self.cluster.muster("why", job).stdout
        self.assertIn(f"muster node lost {self.node_of(job)} --confirm", why)
        refused = self.cluster.muster("node", "lost", self.node_of(job), check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertEqual(self.generation(job), 1)
        # Its machine is switched off.
        self.cluster.workers[self.node_of(job)].kill()
        self.cluster.muster("node", "lost", self.node_of(job), "--confirm")
        wait_until(lambda: self.cluster.get(job)["first_failure"]["reason"] == "NodeLost", 10, "the loss")


class CutOffLongTest(CutOff):
    CUTS = int(os.environ.get("MUSTER_CUTS", "50"))

    def test_cut_off_node(self):
        self.cut_and_heal(self.some_job_node, count=self.CUTS)

    def test_half_of_the_nodes(self):
        self.cut_and_heal(self.half, count=self.CUTS)

    def test_one_direction(self):
        self.cut_and_heal(self.some_job_node, self.one_way, count=self.CUTS)

    def test_killed_coordinator_ends_no_rank(self):
        self.kill_coordinator(int(os.environ.get("MUSTER_KILLS", "50")))

    def test_lost_link_of_coordinator_ends_no_rank(self):
        self.lose_link(int(os.environ.get("MUSTER_LINK_LOSSES", "20")))


if __name__ == "__main__":
    unittest.main()
