#!/usr/bin/env python3
"""One training job of which a rank is killed again and again: its result, and the share of its time that is productive.

    bazel build //cli:muster //coordinator:muster-coordinator //trainer:muster-rank //worker:muster-worker
    tests/bench/endurance_bench.py [--kills 100] [--every 30] [--nodes 2] [--ranks-per-node 2] --steps N

At a fixed interval, a rank chosen at random is killed with SIGKILL, until there have been enough kills. Then the job trains on
to its last step, --steps, which it must not reach before. A run with --kills 0 and the same --steps shows which final loss
and digest of the weights to expect.
"""

import argparse
import os
import pathlib
import random
import re
import signal
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.cluster import Cluster, training_spec  # noqa: E402


def kill_repeatedly(cluster, job, args):
    """Kills ranks of the job until it ends or has lost enough of them. Returns the number of kills."""
    choose = random.Random(args.seed)
    due = time.monotonic()
    for kills in range(args.kills):
        due += args.every
        time.sleep(max(0.0, due - time.monotonic()))  # not a wait: the kill is to hit any moment
        pids = cluster.rank_pids()
        if not pids:
            if cluster.get(job)["state"] in ("SUCCEEDED", "FAILED"):
                return kills
            continue  # between two generations
        os.kill(choose.choice(pids), signal.SIGKILL)
        if kills % 10 == 9:
            progress = cluster.get(job).get("progress", {})
            print(f"{kills + 1} kills, step {progress.get('step')}", flush=True)
    return args.kills


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--every", type=float, default=30, help="seconds between two kills")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks-per-node", type=int, default=2)
    parser.add_argument("--global-batch", type=int, default=128)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with Cluster(nodes=args.nodes, slots=args.ranks_per_node) as cluster:
        start = time.monotonic()
        job = cluster.submit(training_spec(
            "endurance", model={"name": "resnet18"}, image_size=32, global_batch=args.global_batch, max_steps=args.steps,
            sync_batch_norm=True, resources={"nodes": args.nodes, "ranks_per_node": args.ranks_per_node},
            restart={"max": 3}))
        kills = kill_repeatedly(cluster, job, args)
        finished = cluster.wait(job, timeout=24 * 3600)
        seconds = time.monotonic() - start
        summary = finished["summary"]
        print(f"{finished['state']} after {seconds:.0f} s, {kills} kills, {finished['generation']} generations, "
              f"{summary['steps']} steps, final loss {summary.get('final_loss')}, weights {summary['weights_digest']}")
        print(re.search(r"^Goodput:.*\n.*\n(?: .*\n)*", cluster.muster("describe", job).stdout, re.MULTILINE)[0])
        if finished["state"] != "SUCCEEDED":
            sys.exit(1)


if __name__ == "__main__":
    main()
