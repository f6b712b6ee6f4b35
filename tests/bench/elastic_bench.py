#!/usr/bin/env python3
"""How long an elastic training pauses when a whole worker is lost, and when it grows again.

    bazel build //cli:muster //coordinator:muster-coordinator //trainer:muster-rank //worker:muster-worker
    tests/bench/elastic_bench.py [--rounds 20] [--nodes 2] [--ranks-per-node 2] [--job-lease 12s]

resnet18 on images of 32 x 32 with one thread per rank. In each round all processes of the last node are killed with SIGKILL,
its worker included, and the job goes on with the others; then the worker starts again, and the job grows. "lost" is
the time from the kills to the end of the first step that follows, "grown" the time from the decision to grow to the end of
the first step that follows, "pause" that from the moment at which the old ranks have left their state in memory; each less
the time of a step. "steps" is the number of completed steps that are done again.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.cluster import Cluster, parse_time, training_spec, wait_until  # noqa: E402

STEPS_BETWEEN = 6


class Training:
    """The job, and the generation that it is expected to be in."""

    def __init__(self, cluster, args):
        self.cluster = cluster
        self.generation = 1
        self.job = cluster.submit(training_spec(
            "elastic", model={"name": "resnet18"}, image_size=32, global_batch=args.global_batch, max_steps=1_000_000,
            resources={"nodes": {"min": 1, "max": args.nodes}, "ranks_per_node": args.ranks_per_node},
            restart={"max": 3}, failure_timeout="10s"))

    def progress(self):
        """Status of the generation after a step of it; otherwise None."""
        status = self.cluster.get(self.job)
        assert status["state"] not in ("FAILED", "SUCCEEDED"), status
        started = int(status["generation"]) == self.generation and "first_step_time" in status.get("progress", {})
        return status if started else None

    def settle(self):
        """Waits for some steps of the generation. Returns the newest step and the seconds of one."""
        first = int(wait_until(self.progress, 120, f"generation {self.generation}")["progress"]["step"])
        def reached():
            status = self.progress()
            return status if int(status["progress"]["step"]) >= first + STEPS_BETWEEN else None
        progress = wait_until(reached, 120, "some steps")["progress"]
        return int(progress["step"]), progress["step_seconds"]

    def next_generation(self):
        """The status after the first step of the next generation."""
        self.generation += 1
        return wait_until(self.progress, 120, f"generation {self.generation}")

    def time_of(self, type_):
        """Time of the newest event of this type."""
        events = json.loads(self.cluster.muster("describe", self.job, "--events", "-o", "json").stdout)["events"]
        return parse_time([event for event in events if event["type"] == type_][-1]["time"])


    def state_left(self, generation):
        """Time at which the last rank of the generation had left its state in memory."""
        log = self.cluster.muster("logs", self.job, "--generation", str(generation), "--rank", "0,1", "--timestamps").stdout
        return max(parse_time(line.split()[0]) for line in log.splitlines() if "kept the state of step" in line)


def first_step_of(status):
    return parse_time(status["progress"]["first_step_time"])


def one_round(cluster, training, args):
    node = f"node-{args.nodes}"
    step, seconds = training.settle()
    killed = time.time()
    for pid, _ in cluster.processes(node):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cluster.workers[node].process.wait()
    status = training.next_generation()
    lost = first_step_of(status) - killed - seconds
    redone = max(0, step - int(status["checkpoint"]["resumed_step"]))
    _, seconds = training.settle()
    cluster.start_worker(node, args.ranks_per_node)
    status = training.next_generation()
    grown = first_step_of(status) - training.time_of("Stopping") - seconds
    pause = first_step_of(status) - training.state_left(training.generation - 1) - seconds
    assert len(cluster.describe(training.job)["ranks"]) == args.nodes * args.ranks_per_node
    return lost, grown, pause, redone


def summary(name, values):
    return f"{name}: median {statistics.median(values):.2f} s, worst {max(values):.2f} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks-per-node", type=int, default=2)
    parser.add_argument("--global-batch", type=int, default=128)
    parser.add_argument("--job-lease", default="12s")
    args = parser.parse_args()
    with Cluster(nodes=args.nodes, slots=args.ranks_per_node,
                 coordinator_flags=[f"--job-lease={args.job_lease}"]) as cluster:
        training = Training(cluster, args)
        rounds = []
        for _ in range(args.rounds):
            rounds.append(one_round(cluster, training, args))
            print("lost {:.2f} s, grown {:.2f} s, pause {:.2f} s, steps {}".format(*rounds[-1]), flush=True)
        cluster.muster("cancel", training.job)
    lost, grown, pause, redone = zip(*rounds)
    print(summary("lost", lost))
    print(summary("grown", grown))
    print(summary("pause", pause))
    print(f"steps: worst {max(redone)}")


if __name__ == "__main__":
    main()
