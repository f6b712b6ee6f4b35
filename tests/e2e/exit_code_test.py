"""Exit status of a job with one failing rank of eight, from run, wait and submit --follow."""

import json
import unittest

from tests.support.cluster import Cluster, shell_spec

# Waits until stopped; `exec`, so that the signal reaches sleep instead of the shell.
WAIT = "exec sleep 600"
TRACEBACK = """
exec /usr/bin/python3 -c '
def divide(a, b):
    return a / b

divide(RANK, 0)
'"""


def of_rank(number, script, others=WAIT):
    return f"if [ $RANK = {number} ]; then {script}; else {others}; fi"


class ExitCodeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=2, slots=4))

    def spec(self, name, script):
        return shell_spec(name, script, nodes=2, ranks=4, grace_period="2s")

    def run_text(self, name, script, *args):
        """Exit status and text output."""
        spec = self.cluster.write_spec(self.spec(name, script))
        result = self.cluster.muster("run", spec, *args, check=False)
        return result.returncode, result.stdout + result.stderr

    def check_everywhere(self, name, script, status):
        """Checks that all three ways to follow a job return the same status and job, also after it has ended."""
        spec = self.cluster.write_spec(self.spec(name, script))
        jobs = []
        for verb in (("run",), ("submit", "--follow")):
            result = self.cluster.muster(*verb, spec, "-o", "json", check=False)
            self.assertEqual(result.returncode, status, (verb, result.stderr))
            jobs.append(json.loads(result.stdout))
        waited_for = self.cluster.submit(self.spec(name, script))
        for attempt in ("while it runs", "when it is over"):
            result = self.cluster.muster("wait", waited_for, "-o", "json", check=False)
            self.assertEqual(result.returncode, status, (attempt, result.stderr))
            jobs.append(json.loads(result.stdout))
        for job in jobs:
            self.assertEqual(job["state"], "FAILED", job)
            self.assertEqual(job["exit_code"], status)
        return jobs[-1]

    def check_first_failure(self, job, rank, **exit_info):
        failure = job["first_failure"]
        self.assertEqual((int(failure.get("rank", 0)), failure["node"]), (rank, "node-1"))
        for field, value in exit_info.items():
            self.assertEqual(failure["exit"].get(field, 0), value, failure)
        self.assertIn(f"rank {rank} on node-1", failure["message"])
        self.assertEqual(job["message"].count("rank "), 1, job["message"])  # no other rank is named

    def check_consequences(self, job_id, rank):
        """Every other rank is reported as stopped by the worker, and not as a cause."""
        for other in self.cluster.describe(job_id)["ranks"]:
            if int(other.get("rank", 0)) == rank:
                self.assertFalse(other["exit"].get("stopped_by_worker", False), other)
            else:
                self.assertTrue(other["exit"].get("stopped_by_worker", False), other)
        text = self.cluster.muster("describe", job_id, "--ranks").stdout
        self.assertIn("7 other ranks were stopped because of it", text)
        self.assertEqual(text.count(", the first failure"), 1, text)

    def test_exit_code(self):
        job = self.check_everywhere("seven", of_rank(3, "echo out of luck >&2; exit 7"), 7)
        self.check_first_failure(job, 3, exit_code=7, signal=0, stderr_tail="out of luck\n")
        self.check_consequences(job["job_id"], 3)
        status, text = self.run_text("seven", of_rank(3, "echo out of luck >&2; exit 7"))
        self.assertEqual(status, 7)
        self.assertIn("rank 3 on node-1 exited with code 7", text)
        self.assertIn("out of luck", text)

    def test_signal(self):
        job = self.check_everywhere("segv", of_rank(3, "kill -SEGV $$"), 139)
        self.check_first_failure(job, 3, signal=11)
        self.check_consequences(job["job_id"], 3)
        status, text = self.run_text("segv", of_rank(3, "kill -SEGV $$"))
        self.assertEqual(status, 139)
        self.assertIn("SIGSEGV", text)

    def test_python_exception(self):
        job = self.check_everywhere("raises", of_rank(3, TRACEBACK.replace("RANK", "3")), 1)
        self.check_first_failure(job, 3, exit_code=1)
        self.assertIn("ZeroDivisionError: division by zero", job["first_failure"]["exit"]["stderr_tail"])
        self.check_consequences(job["job_id"], 3)
        status, text = self.run_text("raises", of_rank(3, TRACEBACK.replace("RANK", "3")))
        self.assertEqual(status, 1)
        self.assertIn("Traceback (most recent call last)", text)
        self.assertIn("ZeroDivisionError: division by zero", text)

    def test_rank_that_succeeds_first_does_not_set_exit_status(self):
        """Rank 3 exits 0 before the others, which then fail: 5 of rank 6 first, then 9 of the rest."""
        others = """
            until [ -e $SHARED/left ]; do sleep 0.05; done
            if [ $RANK = 6 ]; then exit 5; fi
            trap 'exit 9' TERM
            while true; do sleep 0.1; done"""
        for attempt in range(2):
            shared = self.cluster.directory / f"early-{attempt}"
            shared.mkdir()
            spec = self.spec("early", of_rank(3, "touch $SHARED/left; exit 0", others))
            spec["env"] = {"SHARED": str(shared)}
            job = self.cluster.run(spec, check=False)
            self.assertEqual((job["state"], job["exit_code"]), ("FAILED", 5), job)
            failure = job["first_failure"]
            self.assertEqual((int(failure["rank"]), failure["node"], failure["exit"]["exit_code"]),
                             (6, "node-2", 5))

    def test_all_ranks_succeed(self):
        job = self.cluster.run(self.spec("fine", "exit 0"))
        self.assertEqual((job["state"], int(job.get("exit_code", 0))), ("SUCCEEDED", 0))
        self.assertNotIn("first_failure", job)


if __name__ == "__main__":
    unittest.main()
