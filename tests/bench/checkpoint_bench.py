#!/usr/bin/env python3
"""What checkpoints cost a training: its stall per checkpoint, and its throughput with and without them.

    bazel build //cli:muster //coordinator:muster-coordinator //trainer:muster-rank //worker:muster-worker \\
        //tests/faults:libslow-disk.so
    tests/bench/checkpoint_bench.py [--only resnet18|zero1|large] [--every 60s] [--seconds 150] [--rounds 3]

resnet18: images of 32 x 32, sgd, 89 MB of state, 2 ranks. zero1: the same with one shard of the optimizer states and one
part of a checkpoint per rank. large: linear layers with adamw, 500 MB of state, 1 rank, on
a disk that is limited to 50 MB/s. Each round trains without periodic checkpoints and with them, in turn. Throughput is
that of all steps after the first ten. "copy" is the time to copy as many bytes once in memory that is already mapped.
A row passes if each stall is at most that plus 10 ms and the throughput is at least 98 %. The machine must be idle.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.cluster import Cluster, training_spec  # noqa: E402
from tests.support.daemon import binary  # noqa: E402

WARMUP_STEPS = 10
DISK_BYTES_PER_SECOND = 50_000_000
MOST_STALL_SECONDS, LEAST_THROUGHPUT = 0.010, 0.98


@dataclasses.dataclass
class Case:
    """A training."""

    ranks: int
    disk_bytes_per_second: int  # 0: as fast as it is
    train: dict


CASES = {
    "resnet18": Case(2, 0, {"model": {"name": "resnet18"}, "image_size": 32, "global_batch": 128}),
    "zero1": Case(2, 0, {"model": {"name": "resnet18"}, "image_size": 32, "global_batch": 128,
                         "strategy": {"name": "ddp", "shard_optimizer": True}}),
    "large": Case(1, DISK_BYTES_PER_SECOND, {
        "model": {"layers": ["flatten", {"linear": {"out_features": 6000}}, "relu", {"linear": {"out_features": 6000}},
                             "relu", "linear"]},
        "global_batch": 64, "optimizer": {"name": "adamw", "learning_rate": 0.0001}}),
}


class Bench:
    """A cluster with one node, and its trainings."""

    def __init__(self, cluster, case):
        self.cluster, self.case = cluster, case
        program = cluster.directory / "rank"
        program.write_text(f"#!/bin/sh\nexport LD_PRELOAD={binary('tests/faults/libslow-disk.so')}\n"
                           f"export SLOW_PATH=/checkpoints/ SLOW_WRITE_BYTES_PER_SECOND={case.disk_bytes_per_second}\n"
                           f'exec {binary("trainer/muster-rank")} "$@"\n')
        program.chmod(0o755)
        cluster.start_worker("node-1", case.ranks, flags=[f"--rank-binary={program}"])
        cluster.wait_for_nodes(1)

    def train(self, steps, every):
        """Train. Return images/s, and of each periodic checkpoint the seconds of stall and of writing."""
        finished = self.cluster.run(training_spec(
            "bench", max_steps=steps, resources={"nodes": 1, "ranks_per_node": self.case.ranks},
            checkpoint={"dir": str(self.cluster.directory / "checkpoints" / f"{time.time_ns()}"), "keep": 1,
                        "every": every}, **self.case.train), "--losses", timeout=3600)
        assert finished["state"] == "SUCCEEDED", finished
        ends = finished["summary"]["step_end_seconds"]
        rate = (steps - WARMUP_STEPS) * self.case.train["global_batch"] / (ends[-1] - ends[WARMUP_STEPS - 1])
        log = self.cluster.muster("logs", finished["job_id"], "--rank", "0").stdout
        lines = re.findall(r"checkpoint of step (\d+) written to (\S+) in ([\d.]+) s, training stalled for (\d+) ms", log)
        self.state_bytes = sum(path.stat().st_size for path in pathlib.Path(lines[-1][1]).iterdir())
        return rate, [(int(stall) / 1000, float(took)) for step, _, took, stall in lines if int(step) < steps]


def copy_seconds(size_bytes):
    """Time to copy that many bytes, the best of three."""
    source, target = memoryview(bytearray(size_bytes)), memoryview(bytearray(size_bytes))
    times = []
    for _ in range(4):
        start = time.perf_counter()
        target[:] = source
        times.append(time.perf_counter() - start)
    return min(times[1:])


def measure(name, case, options):
    """Measure a case and print its row. Return whether it passes."""
    with Cluster() as cluster:
        bench = Bench(cluster, case)
        rate, _ = bench.train(40, "0s")
        steps = int(options.seconds * rate / case.train["global_batch"])
        rates, stalls, writes = {"0s": [], options.every: []}, [], []
        for _ in range(options.rounds):
            for every, measured in rates.items():
                rate, checkpoints = bench.train(steps, every)
                measured.append(rate)
                stalls += [stall for stall, _ in checkpoints]
                writes += [took for _, took in checkpoints]
    copy = copy_seconds(bench.state_bytes)
    longest = max(stalls, default=0)
    without, with_them = (statistics.median(measured) for measured in rates.values())
    passes = longest <= copy + MOST_STALL_SECONDS and with_them >= LEAST_THROUGHPUT * without
    print(json.dumps({
        "case": name, "state_mb": round(bench.state_bytes / 1e6), "every": options.every, "steps": steps,
        "checkpoints": len(writes), "write_seconds": round(statistics.median(writes), 2) if writes else None,
        "copy_ms": round(copy * 1000), "longest_stall_ms": round(longest * 1000),
        "median_stall_ms": round(statistics.median(stalls) * 1000) if stalls else None,
        "images_per_second_without": round(without, 1), "images_per_second_with": round(with_them, 1),
        "throughput_percent": round(100 * with_them / without, 2), "passes": passes}), flush=True)
    return passes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=CASES, help="run one case")
    parser.add_argument("--every", default="60s", help="time between checkpoints")
    parser.add_argument("--seconds", type=float, default=150, help="length of each training")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    results = [measure(name, case, options) for name, case in CASES.items() if options.only in (None, name)]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
