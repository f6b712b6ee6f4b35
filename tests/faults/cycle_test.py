"""Jobs that are started and cancelled at random times leave nothing behind and affect no other processes."""

import os
import random
import subprocess
import time
import unittest

from tests.support.cluster import Cluster, command_spec, shell_spec, training_spec, wait_until
from tests.support.footprint import files_below, footprint, threads

CYCLES = 20
LONG_CYCLES = 100

# Forks twice; the last process is a session leader with an empty environment, and all of them ignore SIGTERM.
ESCAPEE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.execve("/bin/sleep", ["sleep", sys.argv[1]], {})
    os._exit(0)
print("up", flush=True)
time.sleep(1000)
"""


def sleepers(duration):
    """Return the pids of the processes started as `sleep DURATION`."""
    result = subprocess.run(["pgrep", "-fx", f"sleep {duration}"], capture_output=True, text=True, check=False)
    return {int(pid) for pid in result.stdout.split()}


class CycleTestCase(unittest.TestCase):
    def specs(self):
        """Yield random pairs (spec, whether to wait until its ranks run) forever."""
        kinds = [
            lambda: training_spec("train", max_steps=100000, grace_period="1s", resources={
                "nodes": 2, "ranks_per_node": self.random.choice((1, 2))}),
            lambda: training_spec("checkpoints", max_steps=100000, grace_period="1s", checkpoint={"every_steps": 20},
                resources={"nodes": 1, "ranks_per_node": 2}),
            lambda: shell_spec("quick", "exec sleep 1000", nodes=2, ranks=2, grace_period="1s"),
            lambda: shell_spec("stubborn", "trap '' TERM; sleep 1000 & while true; do sleep 0.05; done", nodes=2,
                               ranks=1, grace_period="1s"),
            lambda: command_spec("escapee", "/usr/bin/python3", "-c", ESCAPEE, self.duration, nodes=2,
                                 grace_period="1s"),
        ]
        while True:
            self.random.shuffle(kinds)
            yield from (kind() for kind in kinds)

    def one(self, spec):
        job = self.cluster.submit(spec)
        if self.random.random() < 0.5:
            self.cluster.wait_for_state(job, "RUNNING")
        # Cancel at a random time; this does not wait for any condition.
        time.sleep(self.random.uniform(0, 0.5))
        self.cluster.muster("cancel", job, "--grace", self.random.choice(("0s", "100ms", "300ms")))
        finished = self.cluster.wait(job, check=False, timeout=30)
        self.assertEqual(finished["state"], "CANCELLED", finished)
        self.assertNotIn("first_failure", finished)
        return job

    def run_cycles(self, count):
        seed = int(os.environ.get("MUSTER_TEST_SEED", random.randrange(1 << 32)))
        print(f"MUSTER_TEST_SEED={seed}")
        self.random = random.Random(seed)
        # A duration that no other process sleeps for.
        self.duration = f"{100000 + os.getpid()}.5"
        with Cluster(nodes=2, slots=2) as self.cluster:
            # Unrelated processes with the escapee's command line: one in the worker's session, one in its own.
            bystanders = [subprocess.Popen(["sleep", self.duration], start_new_session=apart)
                          for apart in (False, True)]
            try:
                self.check_cycles(count, bystanders)
            finally:
                for bystander in bystanders:
                    bystander.kill()
                    bystander.wait()

    def check_cycles(self, count, bystanders):
        specs = self.specs()
        # Warm-up: runs each kind of job once and unpacks the dataset, so that later cycles create nothing that stays.
        self.cluster.run(training_spec("warm", max_steps=3, resources={"nodes": 2, "ranks_per_node": 1}))
        for _ in range(5):
            self.one(next(specs))
        before = self.settled()
        threads_before = self.threads()
        files_before = self.files()
        jobs = [self.one(next(specs)) for _ in range(count)]
        after = self.settled(before)
        for part, was in before.items():
            self.assertEqual(after[part], was, part)
        # gRPC's thread pool varies with the load, but not with the number of jobs.
        self.assertLess(self.threads() - threads_before, 8)
        kept = self.files() - files_before
        self.assertLessEqual({path for path in kept if not self.may_stay(path, jobs)}, set())
        self.assertEqual(sleepers(self.duration), {b.pid for b in bystanders})
        self.assertEqual([b.poll() for b in bystanders], [None, None])
        self.assertEqual([n["state"] for n in self.cluster.nodes()], ["READY", "READY"])
        self.assertFalse([s for n in self.cluster.nodes() for s in n["slots"] if s.get("job_id")])

    def settled(self, wanted=None):
        """Return the footprint once it equals `wanted`, or once it is stable."""
        last = [None]

        def same():
            now = footprint(self.cluster)
            if wanted is not None:
                last[0] = now
                return now == wanted
            if now == last[0] and not any(now["children"].values()):
                return now
            last[0] = now
            time.sleep(0.3)
            return None
        try:
            wait_until(same, 15, "the footprint")
        except AssertionError:
            if wanted is None:
                raise
        return last[0]

    def threads(self):
        return sum(threads(d.pid) for d in [self.cluster.coordinator, *self.cluster.workers.values()])

    def files(self):
        return {f"{name}/{path}" for name in self.cluster.workers
                for path in files_below(self.cluster.directory / name, without=("logs",))}

    def may_stay(self, path, jobs):
        """Return whether the path may remain: a job's folder, what its program may leave, and what `cp` needs."""
        parts = path.split("/")
        kept = ("work", "checkpoint", "launch.pb")
        return parts[1] == "jobs" and parts[2] in jobs and (len(parts) == 3 or parts[3] in kept)


class CycleTest(CycleTestCase):
    def test_cancelled_jobs_leave_nothing_behind(self):
        self.run_cycles(CYCLES)

    def test_kills_escapee_and_spares_bystanders(self):
        """A command that tries everything to outlive its job."""
        duration = f"{200000 + os.getpid()}.5"
        with Cluster(nodes=1, slots=1) as cluster:
            bystanders = [subprocess.Popen(["sleep", duration], start_new_session=apart) for apart in (False, True)]
            mine = {b.pid for b in bystanders}
            try:
                job = cluster.submit(command_spec("escapee", "/usr/bin/python3", "-c", ESCAPEE, duration))
                wait_until(lambda: sleepers(duration) - mine, 20, "the command's descendant")
                cluster.muster("cancel", job, "--grace", "200ms")
                self.assertEqual(cluster.wait(job, check=False)["state"], "CANCELLED")
                self.assertEqual(sleepers(duration), mine)  # when the job is over, all of it is
                self.assertEqual([b.poll() for b in bystanders], [None, None])
            finally:
                for bystander in bystanders:
                    bystander.kill()
                    bystander.wait()


class CycleLongTest(CycleTestCase):
    def test_cancelled_jobs_leave_nothing_behind(self):
        self.run_cycles(LONG_CYCLES)


if __name__ == "__main__":
    unittest.main()
