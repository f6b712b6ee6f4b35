"""A full disk under a daemon's data directory is reported, loses nothing acknowledged, and is recovered from."""

import json
import os
import re
import unittest
import urllib.request

from tests.support import namespaces
from tests.support.cluster import Cluster, shell_spec, training_spec, wait_until

WHY_NOT = namespaces.why_not()


def fill(folder):
    """Append to a file in `folder` until the disk is full."""
    with open(folder / "filler", "ab", buffering=0) as filler:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    filler.write(bytes(size))
            except OSError:
                continue


@unittest.skipIf(WHY_NOT, WHY_NOT)
class DiskTest(unittest.TestCase):
    def disk(self, cluster, name, size):
        """Mount a small disk under the daemon's data directory, visible only to processes of the mount namespace."""
        folder = cluster.directory / name
        folder.mkdir()
        mounts = cluster.resources.enter_context(namespaces.Mounts(f"mount -t tmpfs -o size={size},mode=700 tmpfs {folder}"))
        return mounts, mounts.path(folder)

    def start_coordinator_on_disk(self, cluster, size):
        """Replace the coordinator by one on a small disk. Return the disk's folder and the arguments to start it again."""
        cluster.coordinator.stop()
        cluster.coordinator = None
        mounts, folder = self.disk(cluster, "small", size)
        where = {"data_dir": cluster.directory / "small", "prefix": mounts.prefix()}
        cluster.start_coordinator(**where)
        return folder, where

    def test_submissions_leave_space_for_running_jobs(self):
        """They are refused before the disk is full; jobs end, restarts succeed; with jobs removed, they are taken again."""
        with Cluster() as cluster:
            folder, where = self.start_coordinator_on_disk(cluster, "48m")
            cluster.start_worker("node-1", slots=1)
            cluster.wait_for_nodes(1)
            done = cluster.directory / "done"
            running = cluster.submit(shell_spec("running", f"until [ -e {done} ]; do sleep 0.1; done"))
            cluster.wait_for_state(running, "RUNNING")
            large = cluster.write_spec(shell_spec("large", "true", env={f"V{i}": "x" * 100_000 for i in range(9)}))
            taken = []

            def submit():
                result = cluster.muster("submit", large, "-o", "name", check=False)
                if result.returncode == 0:
                    taken.append(result.stdout.strip())
                return result

            def submit_until_refused():
                while (result := submit()).returncode == 0:
                    self.assertLess(len(taken), 60)
                self.assertRegex(
                    result.stderr, r"the disk of the coordinator's store has \d+ KiB free and \d+ KiB are needed; "
                    r"the last 6144 KiB are kept for jobs that run; remove finished jobs with muster rm")

            submit_until_refused()
            self.assertGreater(len(taken), 5)
            for _ in range(2):
                cluster.coordinator.kill()
                cluster.start_coordinator(**where)
            cluster.wait_for_nodes(1)
            self.assertEqual(cluster.get(running)["state"], "RUNNING")
            done.touch()
            for job in (running, *taken):
                self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
            left = os.statvfs(folder)
            self.assertGreater(left.f_bavail * left.f_frsize, 6 << 20)

            finished = len(taken)
            submit_until_refused()
            cluster.muster("rm", *taken[:finished])
            wait_until(lambda: submit().returncode == 0, 20, "a submission to be taken")
            for job in taken[finished:]:
                self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")

    def test_coordinator_keeps_acknowledged_jobs_on_full_disk(self):
        """It exits rather than acknowledge what it cannot store; jobs keep running; with space, nothing is lost."""
        with Cluster() as cluster:
            folder, where = self.start_coordinator_on_disk(cluster, "4m")
            cluster.start_worker("node-1", slots=1)
            cluster.wait_for_nodes(1)
            done = cluster.directory / "done"
            running = cluster.submit(shell_spec("running", f"until [ -e {done} ]; do sleep 0.1; done"))
            cluster.wait_for_state(running, "RUNNING")
            ranks = cluster.rank_pids()
            queued = cluster.submit(shell_spec("queued", "true"))

            fill(folder)
            acknowledged = set()

            def change_until_it_ends():
                if cluster.coordinator.process.poll() is not None:
                    return True
                # Only what adds records for jobs that exist is still accepted.
                submitted = cluster.muster("submit", "-o", "name", "--", "/bin/sh", "-c", "#" + "x" * 100000, check=False)
                if submitted.returncode == 0:
                    acknowledged.add(submitted.stdout.strip())
                cluster.muster("hold", queued, check=False)
                cluster.muster("release", queued, check=False)
                return False
            wait_until(change_until_it_ends, 60, "the coordinator to exit")
            self.assertNotEqual(cluster.coordinator.process.returncode, 0)
            last = cluster.coordinator.log().strip().splitlines()[-1]
            self.assertIn("full", last)
            self.assertEqual(cluster.rank_pids(), ranks)

            (folder / "filler").unlink()
            cluster.start_coordinator(**where)
            jobs = {j["job_id"]: j for j in
                    [cluster.get(job) for job in {running, queued, *acknowledged}]}  # all are found
            if jobs[queued]["state"] == "HELD":
                cluster.muster("release", queued)
            self.assertEqual(jobs[running]["state"], "RUNNING")
            for job in acknowledged:
                cluster.muster("cancel", job)
            cluster.wait_for_nodes(1)
            self.assertEqual(cluster.rank_pids(), ranks)
            done.touch()
            for job in (running, queued):
                finished = cluster.wait(job)
                self.assertEqual((finished["state"], int(finished["generation"])), ("SUCCEEDED", 1))
            cluster.coordinator.stop()

    def test_worker_recovers_from_full_disk(self):
        """A job that fills the disk with its log keeps running; a new one names the reason and starts when there is space."""
        with Cluster() as cluster:
            mounts, folder = self.disk(cluster, "node-1", "8m")
            worker = cluster.start_worker("node-1", slots=1, prefix=mounts.prefix())
            cluster.wait_for_nodes(1)
            finished = cluster.run(shell_spec("chatty", "yes 'a line of a log' | head -c 16000000; echo the end"))
            self.assertEqual(finished["state"], "SUCCEEDED")
            self.check_lost_lines(cluster, finished, lines=1000001)
            wait_until(lambda: "of its logs could not be written" in worker.log(), 10, "the worker to report it")

            fill(folder)
            late = cluster.submit(shell_spec("late", "true"))
            wait_until(lambda: self.is_cordoned(cluster.nodes()[0]), 20, "the node to be cordoned")
            failure = cluster.get(late)["first_failure"]
            self.assertEqual((failure["reason"], failure["node"]), ("LaunchFailed", "node-1"))
            self.assertIn("No space left on device", failure["message"])
            self.assertIn("READY,CORDONED", cluster.muster("node", "list").stdout)

            (folder / "filler").unlink()
            for log in folder.glob(f"jobs/{finished['job_id']}/logs/*/*.stdout"):
                os.truncate(log, 0)
            cluster.muster("node", "uncordon", "node-1")
            self.assertEqual(cluster.wait(late)["state"], "SUCCEEDED")
            self.assertEqual([n["state"] for n in cluster.nodes()], ["READY"])
            worker.stop()

    def check_lost_lines(self, cluster, job, lines):
        """An event and a warning of the job and a notice beside its log say how many of its lines are missing."""
        logs = cluster.muster("logs", job["job_id"])
        kept = logs.stdout.count("a line of a log\n")
        self.assertGreater(kept, 100000)
        lost = rf"{lines - kept} lines \(\d+ bytes\)"
        self.assertRegex(logs.stderr, f"rank 0, stdout: {lost} could not be stored: No space left on device")
        described = json.loads(cluster.muster("describe", job["job_id"], "--events", "-o", "json").stdout)
        self.assertRegex([e["message"] for e in described["events"] if e["type"] == "LogLinesLost"][-1],
                         f"rank 0 on node-1: {lost} of its logs are lost: No space left on device")
        self.assertIn("node node-1 could not store all output, so logs lack lines: No space left on device",
                      "".join(job["warnings"]))

    def is_cordoned(self, node):
        """Return whether the coordinator has cordoned the node because of its disk; check the reason."""
        if not node.get("cordoned_by_health"):
            return False
        self.assertIn("No space left on device", node["cordon_reason"])
        self.assertIn(int(node.get("failed_launches", 0)), range(4))
        return True

    def test_jobs_pass_a_node_with_a_full_disk_until_it_is_cleared(self):
        """100 jobs succeed; the node is cordoned after at most 3 failed launches and returns by itself."""
        with Cluster() as cluster:
            mounts, folder = self.disk(cluster, "node-1", "16m")
            cluster.start_worker("node-1", slots=1, prefix=mounts.prefix())
            for name in ("node-2", "node-3"):
                cluster.start_worker(name, slots=2)
            cluster.wait_for_nodes(3)
            fill(folder)

            jobs = [cluster.submit(shell_spec(f"short-{i}", "true")) for i in range(100)]
            failed = 0
            for job in jobs:
                cluster.wait(job)
                events = json.loads(cluster.muster("describe", job, "--events", "-o", "json").stdout)["events"]
                failed += sum(event["type"] == "FirstFailure" for event in events)
            self.assertIn(failed, range(1, 4))
            nodes = {node["name"]: node for node in cluster.nodes()}
            self.assertTrue(self.is_cordoned(nodes["node-1"]), nodes["node-1"])
            self.assertFalse(any(nodes[name].get("cordoned") for name in ("node-2", "node-3")))

            (folder / "filler").unlink()
            wait_until(lambda: not any(node.get("cordoned") for node in cluster.nodes()), 90, "the node to return")
            self.assertEqual(cluster.run(shell_spec("wide", "true", nodes=3))["state"], "SUCCEEDED")

    def start_training(self, cluster, ranks=1, **train):
        """Start a job that writes checkpoints to a small disk. Return it and the disk's folder."""
        mounts, folder = self.disk(cluster, "small", "24m")
        cluster.start_worker("node-1", slots=ranks, prefix=mounts.prefix())
        cluster.wait_for_nodes(1)
        job = cluster.submit(training_spec(
            "train", resources={"ranks_per_node": ranks},
            checkpoint={"dir": str(cluster.directory / "small" / "checkpoints"), "every_steps": 20},
            **{"max_steps": 1000000, "restart": {"max": 0}, **train}))
        wait_until(lambda: int(cluster.get(job).get("checkpoint", {}).get("step", 0)) > 0, 60, "a checkpoint")
        return job, folder

    def check_training_continues(self, **train):
        """Failures are shown; with space, the next checkpoint is written."""
        with Cluster() as cluster:
            job, folder = self.start_training(cluster, **train)

            def status():
                return cluster.get(job)["checkpoint"]

            def fails():
                fill(folder)  # also what a failed checkpoint has left
                return int(status().get("failures", 0)) > 1
            wait_until(fails, 60, "checkpoints to fail")
            failed = status()
            # A rank may have no space for the reason either.
            reasons = "No space left on device|cannot be written; see the log of its rank"
            self.assertRegex(failed["failure"], reasons)
            self.assertGreater(int(failed["failed_step"]), int(failed["step"]))
            self.assertEqual(cluster.get(job)["state"], "RUNNING")
            events = json.loads(cluster.muster("describe", job, "--events", "-o", "json").stdout)["events"]
            messages = [event["message"] for event in events if event["type"] == "CheckpointFailed"]
            self.assertRegex(messages[0], reasons)

            def counted():
                with urllib.request.urlopen(f"http://{cluster.http}/metrics", timeout=10) as page:
                    found = re.search(r"^muster_job_checkpoint_failures_total (\d+)$", page.read().decode(), re.M)
                return found and int(found[1]) > 0
            wait_until(counted, 10, "the metric to count the failures")

            (folder / "filler").unlink()
            wait_until(lambda: int(status()["step"]) > int(failed["failed_step"]), 60, "a later checkpoint")
            cluster.muster("cancel", job)
            self.assertEqual(cluster.wait(job, check=False)["state"], "CANCELLED")

    def test_training_continues_without_checkpoints_on_full_disk(self):
        self.check_training_continues()

    def test_training_continues_without_parts_of_checkpoints_on_full_disk(self):
        self.check_training_continues(ranks=2, strategy={"name": "ddp", "shard_optimizer": True})

    def test_full_disk_fails_training_without_its_final_checkpoint(self):
        with Cluster() as cluster:
            job, folder = self.start_training(cluster, max_steps=600, restart={"max": 3})
            wait_until(lambda: fill(folder) or cluster.get(job)["state"] == "FAILED", 60, "the job to fail")
            failed = cluster.get(job)
            self.assertEqual((failed["state"], failed["exit_code"], int(failed["generation"])), ("FAILED", 73, 1), failed)
            status = failed["checkpoint"]
            self.assertRegex(failed["first_failure"]["message"],
                             f"final checkpoint of step 600 .*No space left on device.*{status['dir']}/{status['name']}")


if __name__ == "__main__":
    unittest.main()
