"""Programs that save when they are asked to stop: within the grace period, on the job's stop signal."""

import pathlib
import re
import unittest

from tests.support.cluster import ROOT, Cluster, command_spec, shell_spec, wait_until

PYTHON = "/usr/bin/python3"  # the interpreter for which python3-torch is installed
EXAMPLE = str(ROOT / "examples/resumable_ddp.py")

# Counts, saves the count on SIGUSR1, and continues from it.
COUNT = """
file="$MUSTER_CHECKPOINT_DIR/count"
save() { echo $n > "$file.tmp"; mv "$file.tmp" "$file"; echo "saved $n"; exit 0; }
trap save USR1
n=$(cat "$file" 2> /dev/null || echo 0)
echo "$MUSTER_STOP_SIGNAL from $n"
while :; do n=$((n + 1)); sleep 0.02; done
"""


class StopTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=1, slots=2))

    def log(self, job, generation=None, rank=0):
        words = [] if generation is None else ["--generation", generation]
        return self.cluster.muster("logs", job, "--rank", rank, *words, check=False).stdout

    def wait_for_line(self, pattern, job, generation):
        return wait_until(lambda: re.search(pattern, self.log(job, generation)), 60,
                          f"{pattern} in generation {generation}")

    def run_to(self, generation, job):
        wait_until(lambda: (j := self.cluster.get(job))["state"] == "RUNNING" and int(j["generation"]) == generation, 60,
                   f"generation {generation}")

    def saved_count(self, job, generation):
        return int(self.wait_for_line(r"saved (\d+)", job, generation)[1])

    def test_command_saves_on_its_stop_signal_and_resumes(self):
        job = self.cluster.submit(shell_spec("count", COUNT, stop_signal="SIGUSR1", grace_period="60s"))
        self.wait_for_line("SIGUSR1 from 0", job, 1)
        self.cluster.muster("requeue", job)
        first = self.saved_count(job, 1)
        self.assertEqual(int(self.wait_for_line(r"SIGUSR1 from (\d+)", job, 2)[1]), first)
        directory = pathlib.Path(self.cluster.get(job)["checkpoint"]["dir"])
        self.assertEqual((directory / "count").read_text(), f"{first}\n")
        self.cluster.muster("cancel", job)
        self.cluster.wait_for_state(job, "CANCELLED")
        self.assertGreaterEqual(self.saved_count(job, 2), first)
        self.assertEqual((directory / "count").read_text(), f"{self.saved_count(job, 2)}\n")
        self.assertEqual(int(self.cluster.get(job)["restarts"]), 0)

    def test_time_limit_lets_a_command_save(self):
        job = self.cluster.submit(shell_spec("limited", COUNT, stop_signal="SIGUSR1", time_limit="2s", grace_period="60s"))
        self.cluster.wait_for_state(job, "TIMED_OUT")
        self.assertGreater(self.saved_count(job, 1), 0)

    def test_pytorch_script_loses_at_most_one_step(self):
        job = self.cluster.submit(command_spec("ddp", PYTHON, EXAMPLE, "--steps=100000", "--step-seconds=0.01", ranks=2,
                                               grace_period="60s"))
        self.wait_for_line(r"step 20 ", job, 1)
        self.cluster.muster("requeue", job)
        resumed = int(self.wait_for_line(r"resumed after step (\d+)", job, 2)[1])
        for rank in range(2):
            last = max(map(int, re.findall(r"^step (\d+) ", self.log(job, 1, rank), re.M)))
            self.assertLessEqual(last - resumed, 1, (rank, last, resumed))
        # The first step of generation 2 is the next one, and the loss continues where it was.
        self.assertEqual(int(self.wait_for_line(r"(?m)^step (\d+) ", job, 2)[1]), resumed + 1)
        self.cluster.muster("cancel", job)
        self.cluster.wait_for_state(job, "CANCELLED")
        self.assertIn("stopped after step", self.log(job, 2))

    def test_worker_that_shuts_down_waits_until_its_ranks_have_saved(self):
        script = COUNT.replace('echo $n > "$file.tmp"', 'sleep 4; echo $n > "$file.tmp"')
        with Cluster(nodes=1) as cluster:
            job = cluster.submit(shell_spec("slow", script, stop_signal="SIGUSR1", grace_period="60s"))
            wait_until(lambda: "SIGUSR1 from 0" in cluster.muster("logs", job, check=False).stdout, 30, "the rank's start")
            directory = pathlib.Path(cluster.get(job)["checkpoint"]["dir"])
            self.assertEqual(cluster.workers["node-1"].stop(timeout=60), 0)
            self.assertTrue((directory / "count").exists())
            self.assertEqual(cluster.get(job)["state"], "QUEUED")


class RefusalTest(unittest.TestCase):
    """Jobs that cannot write a checkpoint when asked."""

    def test_commands_and_jobs_that_do_not_run(self):
        with Cluster(nodes=1) as cluster:
            job = cluster.submit(shell_spec("command", "sleep 600"))
            cluster.wait_for_state(job, "RUNNING")
            queued = cluster.submit(shell_spec("queued", "sleep 600"))
            for name, problem in ((job, "runs a command"), (queued, "runs a command"), ("unknown", "no job")):
                result = cluster.muster("checkpoint", name, check=False)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn(problem, result.stderr)
            cluster.muster("cancel", job, queued, "--force")


if __name__ == "__main__":
    unittest.main()
