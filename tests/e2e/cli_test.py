"""The command line as a user meets it, against real daemons."""

import json
import re
import unittest

from tests.support.cluster import Cluster, training_spec, wait_until


def command_spec(name, *argv, **top):
    return {"name": name, "command": list(argv), "resources": {"nodes": 1, "ranks_per_node": 1}, **top}


class CliTest(unittest.TestCase):
    def test_verbs(self):
        with Cluster(nodes=2) as cluster:
            # Submitting says the id and what to type next; -o name says the id alone.
            spec = cluster.write_spec(training_spec("verbs", max_steps=10))
            result = cluster.muster("submit", spec)
            self.assertIn("muster logs", result.stdout + result.stderr)
            job = cluster.submit(training_spec("verbs-2", max_steps=10))
            self.assertRegex(job, r"^verbs-2-[a-z0-9]+$")

            finished = cluster.wait(job)
            self.assertEqual(finished["state"], "SUCCEEDED")
            self.assertEqual(int(finished.get("exit_code", 0)), 0)
            for field in ("steps", "images_per_second", "seconds_to_first_step", "final_loss",
                          "test_accuracy", "peak_memory_bytes"):
                self.assertIn(field, finished["summary"])

            table = cluster.muster("list", "-a").stdout.splitlines()
            self.assertRegex(table[0], r"^[A-Z ]+$")
            self.assertEqual(sum(job in line for line in table), 1)
            self.assertIn("SUCCEEDED", cluster.muster("get", job).stdout)
            description = cluster.muster("describe", job, "--ranks", "--events").stdout
            self.assertIn("Submitted", description)
            self.assertRegex(description, r"node-[12]")
            nodes = cluster.muster("node", "list").stdout
            self.assertIn("node-1", nodes)
            self.assertIn("node-2", nodes)
            self.assertIn("0.1.0", cluster.muster("version").stdout)
            self.assertEqual(cluster.muster("get", "no-such-job", check=False).returncode, 1)

    def test_spec_verbs_need_no_coordinator(self):
        with Cluster(nodes=0) as cluster:
            template = cluster.muster("spec", "init").stdout
            good = cluster.directory / "good.yaml"
            good.write_text(template)
            self.assertEqual(cluster.muster("spec", "validate", good).returncode, 0)
            bad = cluster.directory / "bad.yaml"
            bad.write_text(template.replace("epochs:", "epoch:", 1))
            result = cluster.muster("spec", "validate", bad, check=False)
            self.assertEqual(result.returncode, 78)
            self.assertIn("epochs", result.stderr)
            self.assertEqual(cluster.muster("spec", "validate", "/no/such/file", check=False).returncode, 66)

    def test_exit_status_is_the_first_failing_ranks(self):
        with Cluster(nodes=1) as cluster:
            for name, script, status in (("seven", "exit 7", 7), ("segv", "kill -SEGV $$", 139), ("good", "true", 0)):
                spec = cluster.write_spec(command_spec(name, "/bin/sh", "-c", script, restart={"max": 0}))
                result = cluster.muster("run", spec, check=False)
                self.assertEqual(result.returncode, status, result.stderr)

    def test_missing_data_fails_without_restart(self):
        with Cluster(nodes=1) as cluster:
            spec = training_spec("nodata", dataset={"name": "fashion_mnist", "path": "/no/such/data"})
            result = cluster.muster("run", cluster.write_spec(spec), "-o", "json", check=False)
            self.assertEqual(result.returncode, 66, result.stderr)
            job = json.loads(result.stdout)
            self.assertEqual(job["state"], "FAILED")
            self.assertIn("/no/such/data", json.dumps(job["first_failure"]))
            self.assertIn("node-1", json.dumps(job["first_failure"]))
            self.assertEqual(int(job["generation"]), 1)

    def test_logs_cancel_and_no_coordinator(self):
        with Cluster(nodes=1) as cluster:
            job = cluster.submit(command_spec(
                "talker", "/bin/sh", "-c", "for i in 1 2 3; do echo line $i; done; echo err >&2; exec sleep 600"))
            cluster.wait_for_state(job, "RUNNING")

            def printed():
                logs = cluster.muster("logs", job)
                return "line 3" in logs.stdout and "err" in logs.stdout + logs.stderr
            wait_until(printed, 10, "the rank's lines in its log")
            follower = cluster.popen("logs", job, "-f")
            cluster.muster("cancel", job, "--grace", "1s")
            out, _ = follower.communicate(timeout=30)  # ends by itself with the job
            self.assertEqual(re.findall(r"line \d", out), ["line 1", "line 2", "line 3"])
            result = cluster.muster("wait", job, "-o", "json", check=False)
            self.assertEqual(json.loads(result.stdout)["state"], "CANCELLED")
            self.assertNotEqual(result.returncode, 0)
            cluster.coordinator.stop()
            self.assertEqual(cluster.muster("list", check=False).returncode, 69)
