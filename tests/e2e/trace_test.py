"""`muster trace` of a training with a killed rank and of a command job."""

import json
import os
import signal
import unittest

from tests.support.cluster import Cluster, parse_time, shell_spec, training_spec, wait_until

COORDINATOR = 1
STATES, RECOVERY, EVENTS = 1, 2, 3


def spans(trace, process, thread):
    return [event for event in trace["traceEvents"]
            if event["ph"] == "X" and (event["pid"], event["tid"]) == (process, thread)]


def end(span):
    return span["ts"] + span["dur"]


def names(trace, kind):
    return {(event["pid"], event["tid"]): event["args"]["name"]
            for event in trace["traceEvents"] if event["name"] == kind}


class TraceTest(unittest.TestCase):
    def setUp(self):
        self.cluster = self.enterContext(Cluster(nodes=2))

    def trace(self, job):
        result = self.cluster.muster("trace", job)
        return json.loads(result.stdout), result.stderr

    def check_nesting(self, trace):
        """Spans of a thread follow or contain each other, as viewers require."""
        threads = {(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["ph"] == "X"}
        for thread in threads:
            open_spans = []
            for span in sorted(spans(trace, *thread), key=lambda s: (s["ts"], -s["dur"])):
                while open_spans and end(open_spans[-1]) <= span["ts"]:
                    open_spans.pop()
                if open_spans:
                    self.assertLessEqual(end(span), end(open_spans[-1]), (thread, span, open_spans[-1]))
                open_spans.append(span)

    def test_training_with_killed_rank(self):
        job = self.cluster.submit(training_spec(
            "traced", max_steps=600, global_batch=64, evaluate_every_epochs=0, restart={"max": 3},
            checkpoint={"every_steps": 100}, resources={"nodes": 2, "ranks_per_node": 1}))
        self.cluster.wait_for_step(job, 150)
        os.kill(self.cluster.rank_pids("node-2")[0], signal.SIGKILL)
        finished = self.cluster.wait(job)
        self.assertEqual((finished["state"], finished["generation"]), ("SUCCEEDED", 2))
        trace, notes = self.trace(job)
        self.assertEqual(notes, "")
        self.check_nesting(trace)

        # The coordinator's view.
        states = spans(trace, COORDINATOR, STATES)
        self.assertEqual([span["name"] for span in states][:5],
                         ["queued", "launch and join", "connect", "first step", "training"])
        for one, other in zip(states, states[1:]):
            self.assertEqual(end(one), other["ts"], (one, other))
        self.assertEqual(states[0]["ts"], 0)
        duration = parse_time(finished["finish_time"]) - parse_time(finished["submit_time"])
        self.assertAlmostEqual(end(states[-1]) / 1e6, duration, places=3)
        recovery, = spans(trace, COORDINATOR, RECOVERY)
        self.assertIn("signal 9", recovery["args"]["failure"])
        marks = [recovery["args"][f"{name}_after_seconds"]
                 for name in ("verdict", "placed", "joined", "running", "first_step")]
        self.assertEqual(marks, sorted(marks))
        self.assertGreaterEqual(marks[0], 0)
        events = [event["name"] for event in trace["traceEvents"] if event["ph"] == "i"]
        self.assertLessEqual({"Submitted", "Placed", "WorldSent", "Running", "FirstFailure", "Finished"}, set(events))

        # A process per node, a thread per rank, of both generations.
        processes = {name: process for (process, _), name in names(trace, "process_name").items()}
        self.assertEqual(set(processes), {f"coordinator: {job}", "node node-1", "node node-2"})
        for rank, node in ((0, "node node-1"), (1, "node node-2")):
            self.assertEqual(names(trace, "thread_name")[processes[node], rank + 1], f"rank {rank}")
            of_rank = spans(trace, processes[node], rank + 1)
            steps = [span for span in of_rank if span["name"].startswith("step ")]
            first = [span["args"]["step"] for span in steps]
            self.assertEqual(first[:16], list(range(1, 17)))
            self.assertGreater(len(steps), 20)
            training = [span for span in of_rank if span["name"] == "training"]
            self.assertEqual({span["args"]["generation"] for span in training}, {1, 2})
            parts = {span["name"] for span in of_rank}
            # Waits for data that take less than a microsecond have no span.
            self.assertLessEqual({"loading-data", "connecting", "compute", "exposed communication"}, parts)
        # Rank 0 is the one that writes checkpoints.
        self.assertEqual(set(trace["otherData"]["clock_corrections_seconds"].values()), {0})

        # The file that the nodes keep is small.
        for path in self.cluster.directory.glob("node-*/**/.muster-trace/*"):
            self.assertLess(path.stat().st_size, 512 << 10, path)

        some, _ = json.loads(self.cluster.muster("trace", job, "--rank", "1").stdout), None
        self.assertNotIn("step 1", [span["name"] for span in spans(some, processes["node node-1"], 1)])

    def test_job_whose_nodes_are_gone_has_the_coordinators_view(self):
        job = self.cluster.submit(training_spec("gone", max_steps=20))
        self.cluster.wait(job)
        for worker in self.cluster.workers.values():
            worker.stop()
        trace, notes = self.trace(job)
        self.assertRegex(notes, r"no steps of rank 0 in generation 1: node node-\d, which ran rank 0, is not connected")
        self.assertIn("queued", [span["name"] for span in spans(trace, COORDINATOR, STATES)])

    def test_command_job(self):
        # A rank that ended before the other one has joined would end the job before it is RUNNING.
        started = self.cluster.directory / "started"
        job = self.cluster.submit(shell_spec("script", f"until [ -e {started} ]; do sleep 0.1; done; exit 3", nodes=2))
        self.cluster.wait_for_state(job, "RUNNING")
        started.touch()
        self.cluster.wait(job, check=False)
        trace, notes = self.trace(job)
        self.assertEqual(notes, "")
        self.check_nesting(trace)
        processes = {name: process for (process, _), name in names(trace, "process_name").items()}
        for rank, node in enumerate(("node node-1", "node node-2")):
            span, = spans(trace, processes[node], rank + 1)
            self.assertEqual(span["name"], "process")
        self.assertIn("running", [span["name"] for span in spans(trace, COORDINATOR, STATES)])


if __name__ == "__main__":
    unittest.main()
