"""Nothing that a program reports costs its node the session: the review's trials, and warnings in `muster describe`."""

import json
import unittest
import urllib.request

from tests.support.cluster import Cluster, command_spec, shell_spec, wait_until


class ReportsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=2))

    def tearDown(self):
        """Each worker still has its first session, and runs the next job."""
        self.assertEqual(self.sessions(), {"node-1": 1, "node-2": 1})
        both = self.cluster.run(command_spec("next", "true", nodes=2))
        self.assertEqual((both["state"], int(both["generation"])), ("SUCCEEDED", 1), both)

    def sessions(self):
        """Sessions that each worker has opened so far."""
        counts = {}
        for node in self.cluster.nodes():
            self.assertEqual(node["state"], "READY", node)
            with urllib.request.urlopen(f"http://{node['metrics_address']}/metrics") as response:
                lines = response.read().decode().splitlines()
            counts[node["name"]] = next(int(float(line.split()[1])) for line in lines
                                        if line.startswith("muster_worker_sessions_total "))
        return counts

    def test_total_steps_without_an_end(self):
        """This program once took down every node on which it ran."""
        job = self.cluster.submit(shell_spec("endless", """
            for step in 1 1 2; do
                echo step=$step total_steps=9223372036854775807 >> $MUSTER_PROGRESS
                sleep 1
            done"""))
        def is_over():
            self.sessions()
            return self.cluster.get(job)["state"] == "SUCCEEDED"
        wait_until(is_over, 60, f"{job} is over")
        finished = self.cluster.get(job)
        self.assertEqual((int(finished["generation"]), int(finished["progress"]["step"])), (1, 2), finished)
        self.assertNotIn("time_left", finished["progress"])
        self.assertNotIn("warnings", finished)

    def test_long_path_in_the_error_of_an_exec(self):
        path = ":".join(f"/no/such/directory/{i:04}/zwölf" for i in range(1000))
        job = self.cluster.run(command_spec("no-program", "no-such-program", env={"PATH": path}), check=False)
        self.assertEqual((job["state"], job["reason"]), ("FAILED", "LaunchFailed"), job)
        self.assertIn("no-such-program", job["message"])

    def test_lines_of_json(self):
        """Python writes a loss that is not a number as NaN."""
        job = self.cluster.run(shell_spec("json", """
            echo '{"step": 7, "total_steps": 9, "loss": 0.5, "phase": "warm-up", "other": [1]}' >> $MUSTER_PROGRESS
            echo '{"epoch": 1.5, "loss": NaN}' >> $MUSTER_PROGRESS"""))
        self.assertEqual({k: str(job["progress"][k]) for k in ("step", "total_steps", "phase", "epoch", "loss")},
                         {"step": "7", "total_steps": "9", "phase": "warm-up", "epoch": "1.5", "loss": "NaN"})
        self.assertNotIn("warnings", self.cluster.get(job["job_id"]))

    def test_line_that_is_not_understood_is_reported_once(self):
        script = r"""
            printf 'step=1\n\nfoo bar\nstep=2\nmore foo\n\377\n' >> $MUSTER_PROGRESS"""
        job = self.cluster.run(shell_spec("foo", script))["job_id"]
        warning = ('rank 0: MUSTER_PROGRESS: line 3 is not understood: "foo bar"; '
                   'write key=value pairs or a JSON object per line')
        self.assertIn(f"Warnings:      {warning}\n", self.cluster.muster("describe", job).stdout)
        described = json.loads(self.cluster.muster("describe", job, "--events", "-o", "json").stdout)
        self.assertEqual(described["warnings"], [warning])
        self.assertEqual([e["message"] for e in described["events"] if e["type"] == "Warning"], [warning])

    def test_bytes_that_are_not_utf8(self):
        job = self.cluster.run(shell_spec("bytes", r"""
            printf 'step=1 phase=a\377b\n' >> $MUSTER_PROGRESS
            printf 'caf\351\n%09000d\n' 7 >&2; exit 3"""), check=False)
        self.assertEqual((job["state"], job["exit_code"], job["progress"]["phase"]), ("FAILED", 3, "a?b"), job)
