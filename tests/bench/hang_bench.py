#!/usr/bin/env python3
"""How soon a stopped rank of a training is named as the one that hangs.

    bazel build //cli:muster //coordinator:muster-coordinator //trainer:muster-rank //worker:muster-worker
    tests/bench/hang_bench.py [--rounds 100] [--nodes 4] [--ranks-per-node 16]

In each round a rank chosen at random is stopped with SIGSTOP, until the coordinator names a rank, and continues. The time is
that from the signal to the verdict. Prints how often the right rank was named, the times, and a backtrace of the first round.
Exits with 1 if another rank was named, or if it took longer than 5 s.
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

LIMIT_SECONDS = 5
STEPS_BETWEEN = 20
ROUNDS_PER_JOB = 15  # fewer than the stalls of a generation that are announced per hour


def one_round(cluster, job, world, choose):
    """Returns the stopped rank, the named one, the seconds to the verdict, and the message."""
    step = int(cluster.get(job).get("progress", {}).get("step", 0))
    cluster.wait_for_step(job, step + STEPS_BETWEEN, timeout=300)
    rank = choose.randrange(world)
    pid = next(int(r["pid"]) for r in cluster.describe(job)["ranks"] if int(r.get("rank", 0)) == rank)
    stopped = time.time()
    os.kill(pid, signal.SIGSTOP)
    try:
        hang = wait_until(lambda: cluster.describe(job).get("hang"), 60, "a hang")
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: "hang" not in cluster.describe(job), 60, "the end of the hang")
    return rank, int(hang.get("suspect_rank", -1)), parse_time(hang["time"]) - stopped, hang


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--ranks-per-node", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    world = args.nodes * args.ranks_per_node
    choose = random.Random(args.seed)
    seconds, wrong = [], 0
    with Cluster(nodes=args.nodes, slots=args.ranks_per_node) as cluster:
        for i in range(args.rounds):
            if i % ROUNDS_PER_JOB == 0:
                if i > 0:
                    cluster.muster("cancel", job, "--grace", "0s")
                job = cluster.submit(training_spec(
                    "hang", global_batch=2 * world, max_steps=100_000_000, failure_timeout="60s",
                    resources={"nodes": args.nodes, "ranks_per_node": args.ranks_per_node}))
                cluster.wait_for_step(job, STEPS_BETWEEN, timeout=300)
            rank, named, took, hang = one_round(cluster, job, world, choose)
            seconds.append(took)
            wrong += named != rank
            print(f"round {i + 1}: rank {rank} stopped, rank {named} named after {took:.2f} s", flush=True)
            if i == 0:
                print(hang["message"], flush=True)
        cluster.muster("cancel", job, "--grace", "1s")
    print(f"{args.rounds - wrong} of {args.rounds} right; median {statistics.median(seconds):.2f} s, worst {max(seconds):.2f} s")
    sys.exit(1 if wrong or max(seconds) > LIMIT_SECONDS else 0)


if __name__ == "__main__":
    main()
