#!/usr/bin/env python3
"""Bubble ratio of a two-stage pipeline, compared with the prediction of the simulator.

    tests/bench/pipeline_bench.py [--micro-batches N]… [--blocks 8] [--rounds 5] [--output PREFIX]

Trains a model of identical residual blocks, cut in the middle, with a real coordinator and worker, using each schedule
with each number of micro-batches; figures are medians over the rounds. "formula" is (p-1)/(m+p-1), for equal stages;
"predicted" is `muster experiment --simulate` with the costs measured in the same run; its difference from the formula is
the cost of imbalance. "apart" is measured - predicted. Also reported: the simulator's results at p = 4 and 8 with the
same costs, and the activation memory of the first stage.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.results_file import markdown_table  # noqa: E402
from tests.bench.train_bench import short_dataset  # noqa: E402
from tests.support.cluster import Cluster, training_spec  # noqa: E402
from tests.support.daemon import binary  # noqa: E402

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


def predict(job, schedule, stages, micro_batches):
    """Predicted bubble ratio for `stages` stages, splitting each of the two measured stages into stages / 2 equal ones."""
    measured = job["summary"]["stages"]
    each = stages // len(measured)
    forward, backward = ([stage[key] / each for stage in measured for _ in range(each)]
                         for key in ("forward_seconds", "backward_seconds"))
    answer = subprocess.run(
        [binary("cli/muster"), "experiment", "--simulate", "--forward", ",".join(map(str, forward)), "--backward",
         ",".join(map(str, backward)), "--micro-batches", str(micro_batches), "--schedules", schedule, "-o", "json"],
        check=True, capture_output=True, text=True)
    (prediction,) = json.loads(answer.stdout)
    return prediction["bubble_ratio"]


def formula(schedule, stages, micro_batches):
    if schedule == "sequential":
        return 1 - 1 / stages
    return (stages - 1) / (micro_batches + stages - 1)


def row(schedule, count, jobs):
    median = statistics.median
    stages = [job["summary"]["stages"] for job in jobs]
    costs = [[stage["forward_seconds"] + stage["backward_seconds"] for stage in run] for run in stages]
    measured = median(job["summary"]["bubble_ratio"] for job in jobs)
    apart = median(job["summary"]["bubble_ratio"] - predict(job, schedule, 2, count) for job in jobs)
    return {"schedule": schedule, "micro-batches": count, "measured": f"{measured:.3f}",
            "predicted": f"{median(predict(job, schedule, 2, count) for job in jobs):.3f}", "apart": f"{apart:+.3f}",
            "formula": f"{formula(schedule, 2, count):.3f}",
            "slowest stage / mean": f"{median(max(cost) * len(cost) / sum(cost) for cost in costs):.3f}",
            "p=4": f"{median(predict(job, schedule, 4, count) for job in jobs):.3f} ({formula(schedule, 4, count):.3f})",
            "p=8": f"{median(predict(job, schedule, 8, count) for job in jobs):.3f} ({formula(schedule, 8, count):.3f})",
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
