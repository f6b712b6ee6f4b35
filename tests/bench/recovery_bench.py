#!/usr/bin/env python3
"""How long a training pauses, and how many steps it loses, when one of its ranks is killed.

    bazel build //cli:muster //coordinator:muster-coordinator //trainer:muster-rank //worker:muster-worker
    tests/bench/recovery_bench.py [--rounds 20] [--nodes 2] [--ranks-per-node 2]

resnet18 on images of 32 x 32. In each round, a rank chosen at random is killed with SIGKILL at a random moment between
two steps of a generation that has run for some steps. "pause" is the time from the kill to the end of the first step of
the next generation, so that it contains that step. "lost" is the number of steps that were reported before the kill and
are done again. The machine must be idle.
"""

import argparse
import os
import pathlib
import random
import signal
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.cluster import Cluster, parse_time, training_spec, wait_until  # noqa: E402

STEPS_BEFORE_KILL = 6


def progress_of(cluster, job, generation):
    """Progress of rank 0 in the generation, once it has finished a step in it; otherwise None."""
    status = cluster.get(job)
    assert status["state"] not in ("FAILED", "SUCCEEDED"), status
    progress = status.get("progress", {})
    if int(status["generation"]) != generation or "first_step_time" not in progress:
        return None
    return progress


def kill_one(cluster, job, generation, choose):
    """Kill a rank after some steps. Return the seconds of pause and of a step, and the number of lost steps."""
    first = wait_until(lambda: progress_of(cluster, job, generation), 60, "the first step")
    target = int(first["step"]) + STEPS_BEFORE_KILL
    before = wait_until(lambda: (p := progress_of(cluster, job, generation)) and int(p["step"]) >= target and p, 60,
                        f"step {target}")
    step_seconds = before["step_seconds"]
    time.sleep(choose.random() * step_seconds)  # not a wait: the kill is to hit any phase of a step
    before = cluster.get(job)["progress"]
    pid = choose.choice(cluster.rank_pids())
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    after = wait_until(lambda: progress_of(cluster, job, generation + 1), 60, "a step of the next generation")
    pause = parse_time(after["first_step_time"]) - killed
    resumed = int(cluster.get(job).get("checkpoint", {}).get("resumed_step", 0))
    return pause, step_seconds, max(0, int(before["step"]) - resumed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks-per-node", type=int, default=2)
    parser.add_argument("--global-batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    choose = random.Random(args.seed)
    with Cluster(nodes=args.nodes, slots=args.ranks_per_node) as cluster:
        job = cluster.submit(training_spec(
            "recovery", model={"name": "resnet18"}, image_size=32, global_batch=args.global_batch, max_steps=1_000_000,
            resources={"nodes": args.nodes, "ranks_per_node": args.ranks_per_node}, restart={"max": 3}))
        rounds = []
        for generation in range(1, args.rounds + 1):
            rounds.append(kill_one(cluster, job, generation, choose))
            print("pause {:.2f} s, step {:.2f} s, lost {}".format(*rounds[-1]), flush=True)
        cluster.muster("cancel", job)
    pauses = [pause - step for pause, step, _ in rounds]
    print(f"pause beyond one step: median {statistics.median(pauses):.2f} s, worst {max(pauses):.2f} s; "
          f"most steps lost: {max(lost for _, _, lost in rounds)}")


if __name__ == "__main__":
    main()
