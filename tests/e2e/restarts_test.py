"""Restarts of command jobs, and what survives a restart of the coordinator."""

import contextlib
import json
import os
import signal
import unittest

from tests.support.cluster import Cluster, shell_spec, training_spec


class RestartsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=1, slots=2))

    def run_shell(self, script, *args):
        """(Exit status, finished job) of `muster run ARGS -- sh -c SCRIPT`."""
        result = self.cluster.muster("run", "-o", "json", *args, "--", "/bin/sh", "-c", script, check=False)
        return result.returncode, json.loads(result.stdout)

    def test_program_runs_once_by_default(self):
        status, job = self.run_shell("echo ran; exit 7")
        self.assertEqual((status, job["state"], int(job["generation"])), (7, "FAILED", 1))
        self.assertEqual(job["message"], "rank 0 on node-1 exited with code 7")

    def test_restarts_are_counted_since_the_last_step(self):
        """Each generation completes a step, so two restarts suffice for four failures."""
        script = """
            [ $TORCHELASTIC_RESTART_COUNT = 4 ] && exit 0
            echo step=$((10 + TORCHELASTIC_RESTART_COUNT)) >> $MUSTER_PROGRESS; exit 3"""
        status, job = self.run_shell(script, "--restarts", "2")
        self.assertEqual((status, job["state"]), (0, "SUCCEEDED"), job)
        self.assertEqual(int(job["restarts"]), 4)

    def test_repeated_steps_are_redone(self):
        """The second generation repeats the steps of the first one, and adds one."""
        script = """
            for step in 1 2 3; do echo step=$step >> $MUSTER_PROGRESS; sleep 0.6; done
            [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3
            echo step=4 >> $MUSTER_PROGRESS"""
        status, job = self.run_shell(script, "--restarts", "1")
        self.assertEqual((status, job["state"]), (0, "SUCCEEDED"), job)
        goodput = json.loads(self.cluster.muster("describe", job["job_id"], "-o", "json").stdout)["goodput"]
        seconds = {cause["cause"]: float(cause["wall_time"].rstrip("s")) for cause in goodput["causes"]}
        for cause in ("productive", "redone"):
            self.assertGreater(seconds.get(cause, 0), 0.3, goodput)
        self.assertGreater(seconds.get("recovery", 0), 0, goodput)

    def test_restarts_end_without_steps(self):
        """The ranks take turns in failing first."""
        script = """
            [ $RANK = $((TORCHELASTIC_RESTART_COUNT % 2)) ] || exec sleep 600
            echo step=10 >> $MUSTER_PROGRESS; exit $((40 + RANK))"""
        status, job = self.run_shell(script, "--restarts", "2", "--nproc-per-node", "2")
        self.assertEqual((status, job["state"], int(job["generation"])), (40, "FAILED", 3), job)
        self.assertIn("no restarts left: 2 restarts without a step in between (restart.max: 2)", job["message"])


class LostNodeTest(unittest.TestCase):
    def test_lost_node_uses_up_no_restart(self):
        # Both nodes are there before the job: by its first report, node-1 has confirmed to the coordinator that node-2 may
        # vouch for it. Before, node-2 could not confirm that the ranks of node-1 have ended.
        with Cluster(nodes=2, coordinator_flags=["--lease=3s", "--job-lease=3s"]) as cluster:
            cluster.muster("node", "cordon", "node-2")
            job = cluster.submit(shell_spec("moves", "[ $MUSTER_NODE_NAME = node-2 ] || exec sleep 600",
                                            failure_timeout="1s"))
            cluster.wait_for_state(job, "RUNNING")
            cluster.muster("node", "uncordon", "node-2")
            cluster.workers["node-1"].kill()
            for pid, _ in cluster.processes():
                if pid not in (cluster.coordinator.pid, cluster.workers["node-2"].pid):
                    with contextlib.suppress(ProcessLookupError):  # ended with its shim
                        os.kill(pid, signal.SIGKILL)
            finished = cluster.wait(job)
            self.assertEqual((finished["state"], int(finished["restarts"])), ("SUCCEEDED", 1), finished)
            self.assertEqual(finished["first_failure"]["reason"], "NodeLost")
            self.assertEqual(int(finished["restarts_used"]), 0)


class CoordinatorTest(unittest.TestCase):
    def test_progress_survives_coordinator(self):
        with Cluster(nodes=1) as cluster:
            command = cluster.run(shell_spec(
                "command", "echo step=20 total_steps=20 loss=0.5 epoch=2 >> $MUSTER_PROGRESS"))["job_id"]
            train = cluster.run(training_spec("train", max_steps=20))["job_id"]
            before = {job: cluster.get(job)["progress"] for job in (command, train)}
            cluster.coordinator.kill()
            cluster.start_coordinator()
            self.assertEqual({job: cluster.get(job)["progress"] for job in (command, train)}, before)
            lines = cluster.muster("list", "-a").stdout.splitlines()
            self.assertEqual([line.split()[4] for line in lines[1:]], ["20/20", "20/20"], lines)


if __name__ == "__main__":
    unittest.main()
