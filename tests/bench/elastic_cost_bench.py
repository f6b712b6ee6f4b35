#!/usr/bin/env python3
"""What `deterministic: elastic` costs: the median step of a training with and without it.

    bazel build //cli:muster //coordinator:muster-coordinator //trainer:muster-rank //worker:muster-worker
    tests/bench/elastic_cost_bench.py [--steps 30] [--rounds 3] [--global-batch 128]

resnet18 on images of 32 x 32 with one thread per rank, without checkpoints. Each round trains, in turn, with
`deterministic: true` on 4 ranks, with elastic on 4 of 4 ranks, and with elastic on 2 of 4 ranks, on one node; then the
first two on two nodes of 2 ranks. Printed are the median of the rounds' median steps, and the least and the largest. All
elastic trainings must end with the same weights. The machine must be idle.
"""

import argparse
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.cluster import Cluster, training_spec  # noqa: E402

FOUR_RANKS = {"nodes": 1, "ranks_per_node": 4}
TWO_OF_FOUR_RANKS = {"nodes": {"min": 1, "max": 2}, "ranks_per_node": 2}
TWO_NODES = {"nodes": 2, "ranks_per_node": 2}
# By number of nodes: name, number of ranks, `deterministic` and resources.
CASES = {
    1: [("ddp, 1 node x 4 ranks", 4, True, FOUR_RANKS),
        ("elastic, 1 node x 4 ranks", 4, "elastic", FOUR_RANKS),
        ("elastic, 1 node x 2 of 4 ranks", 2, "elastic", TWO_OF_FOUR_RANKS)],
    2: [("ddp, 2 nodes x 2 ranks", 4, True, TWO_NODES),
        ("elastic, 2 nodes x 2 ranks", 4, "elastic", TWO_NODES)],
}


def train(cluster, ranks, deterministic, resources, args):
    """Train. Return the median step and the digest of the weights."""
    finished = cluster.run(training_spec(
        "bench", model={"name": "resnet18"}, image_size=32, global_batch=args.global_batch, max_steps=args.steps,
        checkpoint={"keep": 0}, deterministic=deterministic, resources={**resources, "device": "cpu"}), timeout=3600)
    assert finished["state"] == "SUCCEEDED", finished
    assert len(finished["summary"]["devices"]) == ranks, finished
    return finished["summary"]["median_step_seconds"], finished["summary"]["weights_digest"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--global-batch", type=int, default=128)
    args = parser.parse_args()
    elastic = set()  # digests of the weights
    for nodes, cases in CASES.items():
        times = {name: [] for name, *_ in cases}
        with Cluster(nodes=nodes, slots=4 // nodes) as cluster:
            for _ in range(args.rounds):
                for name, ranks, deterministic, resources in cases:
                    seconds, digest = train(cluster, ranks, deterministic, resources, args)
                    times[name].append(seconds)
                    if deterministic == "elastic":
                        elastic.add(digest)
        for name, rounds in times.items():
            print(f"{name}: {statistics.median(rounds) * 1000:.1f} ms "
                  f"({min(rounds) * 1000:.1f} to {max(rounds) * 1000:.1f})", flush=True)
    assert len(elastic) == 1, f"elastic trainings differ: {elastic}"


if __name__ == "__main__":
    main()
