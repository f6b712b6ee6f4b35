#!/usr/bin/env python3
"""Bubble ratio of a two-stage pipeline, compared with the formula for equal stages.

    tests/bench/pipeline_bench.py [--micro-batches N]… [--blocks 8] [--rounds 5] [--output PREFIX]

Trains a model of identical residual blocks, cut in the middle, with a real coordinator and worker, using each schedule
with each number of micro-batches; figures are medians over the rounds. "formula" is (p-1)/(m+p-1). Also reported: the
imbalance of the stages, and the activation memory of the first stage.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.results_file import markdown_table  # noqa: E402
from tests.bench.train_bench import short_dataset  # noqa: E402
from tests.support.cluster import Cluster, training_spec  # noqa: E402

CHANNELS = 32
SAMPLES = 16  # per micro-batch
SCHEDULES = ("gpipe", "1f1b", "sequential")


def convolution():
    return {"conv2d": {"out_channels": CHANNELS, "kernel": 3, "padding": 1}}


def layers(blocks):
    """`blocks` times convolution and ReLU; the cost of the other layers is negligible."""
    return [{"conv2d": {"out_channels": CHANNELS, "kernel": 1}}, *[layer for _ in range(blocks)
                                                                  for layer in (convolution(), "relu")],
            "adaptive_avg_pool2d", "flatten", "linear"]


def spec(blocks, schedule, micro_batches, data):
    return training_spec(
        "bubble", model={"layers": layers(blocks)}, global_batch=SAMPLES * micro_batches, max_steps=25,
        optimizer={"name": "sgd", "learning_rate": 0.01}, dataset={
            "name": "fashion_mnist", "path": str(data)},
        strategy={"name": "pipeline", "pipeline": {
            "stages": 2, "schedule": schedule, "micro_batches": micro_batches, "cuts": [str(1 + blocks)]}},
        resources={"nodes": 1, "ranks_per_node": 2})


def formula(schedule, micro_batches):
    return 1 / 2 if schedule == "sequential" else 1 / (micro_batches + 1)


def row(schedule, count, jobs):
    median = statistics.median
    stages = [job["summary"]["stages"] for job in jobs]
    costs = [[stage["forward_seconds"] + stage["backward_seconds"] for stage in run] for run in stages]
    measured = median(job["summary"]["bubble_ratio"] for job in jobs)
    return {"schedule": schedule, "micro-batches": count, "measured": f"{measured:.3f}",
            "formula": f"{formula(schedule, count):.3f}",
            "slowest stage / mean": f"{median(max(cost) * len(cost) / sum(cost) for cost in costs):.3f}",
            "first stage keeps": f"{int(stages[0][0]['activation_bytes']) / 2**20:.1f} MiB",
            "step": f"{1000 * median(job['summary']['median_step_seconds'] for job in jobs):.0f} ms"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--micro-batches", type=int, action="append")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=pathlib.Path)
    flags = parser.parse_args()
    counts = flags.micro_batches or [2, 4, 8]
    jobs = {}
    with tempfile.TemporaryDirectory() as data, Cluster(nodes=1, slots=2) as cluster:
        short_dataset(data)
        for number in range(flags.rounds):
            for schedule in SCHEDULES:
                for count in counts:
                    job = cluster.run(spec(flags.blocks, schedule, count, data), timeout=600)
                    jobs.setdefault((schedule, count), []).append(job)
                    print(f"round {number + 1}: {schedule}, {count} micro-batches: "
                          f"{job['summary']['bubble_ratio']:.3f}", file=sys.stderr)
    rows = [row(schedule, count, runs) for (schedule, count), runs in jobs.items()]
    table = markdown_table(list(rows[0]), [[str(cell) for cell in each.values()] for each in rows])
    print(table)
    if flags.output is not None:
        flags.output.with_suffix(".md").write_text(table)
        flags.output.with_suffix(".json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
