#!/usr/bin/env python3
"""What recording steps for `muster trace` costs: time per step of a training with and without a record.

    tests/bench/trace_bench.py [--rounds 5] [--steps 20000]

Each round trains both in turn. A job with a `workdir` of its own records nothing; otherwise the jobs are the same: an mlp
with batches of 8 on one CPU, whose steps are as short as those of any training. The time is the job's productive time,
which includes everything but set-up, evaluation and checkpoints.
"""

import argparse
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.cluster import Cluster, training_spec  # noqa: E402


def microseconds_per_step(cluster, name, steps, workdir):
    spec = training_spec(name, model={"name": "mlp"}, global_batch=8, max_steps=steps, checkpoint={"keep": 0})
    if workdir is not None:
        spec["workdir"] = str(workdir)
    job = cluster.run(spec)["job_id"]
    causes = {cause["cause"]: cause["wall_time"] for cause in cluster.get(job)["goodput"]["causes"]}
    recorded = list(cluster.directory.glob(f"node-1/**/{job}/**/.muster-trace/generation-1.jsonl"))
    assert bool(recorded) == (workdir is None), (recorded, workdir)
    return float(causes["productive"].removesuffix("s")) / steps * 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20_000)
    options = parser.parse_args()
    times = {"recorded": [], "not recorded": []}
    with Cluster(nodes=1) as cluster:
        workdir = cluster.directory / "work"
        workdir.mkdir()
        for number in range(options.rounds):
            for kind, directory in (("recorded", None), ("not recorded", workdir)):
                times[kind].append(microseconds_per_step(cluster, f"{kind.split()[0]}-{number}", options.steps, directory))
    for kind, samples in times.items():
        print(f"{kind}: median {statistics.median(samples):.2f} us per step, {min(samples):.2f} to {max(samples):.2f}")


if __name__ == "__main__":
    main()
