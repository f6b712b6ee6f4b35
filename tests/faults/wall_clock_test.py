"""Setting the wall clock of a running cluster changes nothing: leases, delays and time limits are on time."""

import mmap
import struct
import time
import unittest

from tests.support.cluster import Cluster, binary, shell_spec, training_spec, wait_until

HOUR = 3600
TEN_YEARS = 10 * 365 * 24 * HOUR
STEPS = (HOUR, -HOUR, TEN_YEARS, -TEN_YEARS, 0)
LEASE, JOB_LEASE = 2, 4
FLAGS = [f"--lease={LEASE}s", f"--job-lease={JOB_LEASE}s", "--heartbeat-interval=300ms"]


class SetClock:
    """A wall clock that can be set for the daemons and ranks that preload tests/faults/libwall-clock.so."""

    def __init__(self, directory):
        self.path = directory / "wall-clock"
        self.path.write_bytes(bytes(8))
        with open(self.path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 8)
        self.environment = {"LD_PRELOAD": binary("tests/faults/libwall-clock.so"), "WALL_CLOCK_FILE": str(self.path)}

    def set(self, seconds):
        self.map[:] = struct.pack("<q", int(seconds))


class ClockCluster(Cluster):
    """A cluster whose daemons have a clock of their own."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.clock = SetClock(self.directory)

    def site(self, name):
        site = super().site(name)
        site.env = dict(site.env, **self.clock.environment)
        return site


class WallClockTest(unittest.TestCase):
    def setUp(self):
        self.cluster = self.enterContext(ClockCluster(nodes=2, slots=2, coordinator_flags=FLAGS))

    def pass_time(self, seconds):
        end = time.monotonic() + seconds
        wait_until(lambda: time.monotonic() > end, seconds + 5, f"{seconds} s")

    def cancel_at_end(self, job):
        self.addCleanup(lambda: self.cluster.muster("cancel", job, "--grace", "0s", check=False))
        return job

    def generation_of(self, job):
        return int(self.cluster.get(job).get("generation", 0))

    def test_library_sets_clock_of_daemons(self):
        """Without this, the other tests would show nothing."""
        self.cluster.clock.set(TEN_YEARS)
        year = time.gmtime(time.time() + TEN_YEARS).tm_year
        # Abseil compares its clock with the kernel's every two seconds.
        wait_until(lambda: self.year_of_submission() == year, 30, f"a job submitted in {year}")

    def year_of_submission(self):
        job = self.cluster.submit(shell_spec("dated", "true"))
        self.cluster.wait(job)
        return int(self.cluster.get(job)["submit_time"][:4])

    def test_ranks_and_nodes_live_on(self):
        train = self.cancel_at_end(self.cluster.submit({
            **training_spec("train", max_steps=10_000_000, resources={"nodes": 2, "ranks_per_node": 1},
                            grace_period="1s", failure_timeout="3s"),
            "env": self.cluster.clock.environment}))
        command = self.cancel_at_end(self.cluster.submit(shell_spec("command", "exec sleep 1000", nodes=2)))
        waiting = self.cancel_at_end(self.cluster.submit(shell_spec("waiting", "true", nodes=2)))
        step = int(self.cluster.wait_for_step(train, 5)["progress"]["step"])
        self.cluster.wait_for_state(command, "RUNNING")
        for seconds in STEPS:
            with self.subTest(seconds=seconds):
                self.cluster.clock.set(seconds)
                self.pass_time(JOB_LEASE + LEASE)
                self.assertEqual([node["state"] for node in self.cluster.nodes()], ["READY", "READY"])
                for job in (train, command):
                    state = self.cluster.get(job)
                    self.assertEqual((state["state"], int(state["generation"])), ("RUNNING", 1), state)
                    self.assertNotIn("first_failure", state)
                self.assertEqual(self.cluster.get(waiting)["state"], "QUEUED")
                step = int(self.cluster.wait_for_step(train, step + 2)["progress"]["step"])

    def test_time_limit_ends_on_time(self):
        """Also over a restart of the coordinator with a clock that is wrong."""
        limit = 16
        started = time.monotonic()
        job = self.cluster.submit(shell_spec("limited", "exec sleep 1000", time_limit=f"{limit}s", grace_period="1s"))
        self.cluster.wait_for_state(job, "RUNNING")
        running = time.monotonic()
        for seconds in STEPS[:4]:
            self.cluster.clock.set(seconds)
            self.pass_time(2)
            if seconds == TEN_YEARS:
                self.cluster.coordinator.kill()
                self.cluster.clock.set(-HOUR)
                self.cluster.start_coordinator()
            self.assertEqual((self.cluster.get(job)["state"], self.generation_of(job)), ("RUNNING", 1))
        result = self.cluster.wait(job, check=False)
        ended = time.monotonic()
        self.assertEqual(result["state"], "TIMED_OUT", result)
        self.assertGreaterEqual(ended - started, limit)
        self.assertLess(ended - running, limit + 8)

    def test_delays_end_on_time(self):
        """A job that fails at once is started again after growing delays, the same with and without steps."""
        def attempts(name, steps):
            path = self.cluster.directory / f"{name}.times"
            # The time since the boot, which nobody sets.
            script = f"cut -d' ' -f1 /proc/uptime >> {path}; exit 3"
            job = self.cluster.submit(shell_spec(name, script, restart={"max": 3}))
            steps = iter(steps)

            def ended():
                self.cluster.clock.set(next(steps, 0))
                self.pass_time(0.5)
                return self.cluster.get(job)["state"] == "FAILED"
            wait_until(ended, 60, f"{name} to fail")
            times = [float(line) for line in path.read_text().split()]
            return [later - earlier for earlier, later in zip(times, times[1:])]

        expected = attempts("undisturbed", [])
        found = attempts("disturbed", STEPS * 20)
        self.assertEqual(len(found), len(expected))
        for with_steps, without in zip(found, expected):
            self.assertAlmostEqual(with_steps, without, delta=2)


if __name__ == "__main__":
    unittest.main()
