#!/usr/bin/env python3
"""Compares the speed of two builds of Muster: interleaved rounds, medians, and the noise of the old build.

    tests/bench/compare_builds.py BASE_TREE [--rounds 9] [--only WORD]… [--output FILE.md]

BASE_TREE is another checkout of the repository, built like this one: //cli:muster //coordinator:muster-coordinator
//worker:all //tests/bench:all. Every round runs each benchmark with the old build, the new one, and the old one again.
A row passes if the new median is within the tolerance of the old one, or within the difference between the two series
of the old build. Exits with status 1 if a row fails.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAINING_TOLERANCE, CONTROL_TOLERANCE = 0.03, 0.05

TRAININGS = {
    "small_cnn O0, 2 ranks": ("small_cnn", 28, 128, "O0", 200),
    "small_cnn O2, 2 ranks": ("small_cnn", 28, 128, "O2", 200),
    "resnet18 O0, 2 ranks": ("resnet18", 32, 128, "O0", 20),
    "resnet18 O2, 2 ranks": ("resnet18", 32, 128, "O2", 20),
    "mobilenet_v2 O0, 2 ranks": ("mobilenet_v2", 112, 32, "O0", 10),
}


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def train(tree, model, image, batch, precision, steps):
    """{metric: (value, whether higher is better)} of one training."""
    spec = {
        "name": "compare",
        "train": {
            "model": {"name": model},
            "dataset": {"name": "fashion_mnist", "path": "/usr/share/datasets/fashion-mnist"},
            "image_size": image,
            "global_batch": batch,
            "max_steps": steps,
            "precision": precision,
            "optimizer": {"name": "sgd", "learning_rate": 0.05, "momentum": 0.9},
        },
        "resources": {"nodes": 1, "ranks_per_node": 2},
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(spec, file)
        file.flush()
        summary = json.loads(run(tree / "bazel-bin/cli/muster", "local", file.name, "-o", "json"))["summary"]
    return {"images/s": (summary["images_per_second"], True)}


def allreduce(tree):
    found = json.loads(
        run(tree / "bazel-bin/tests/bench/allreduce_bench", "--rounds=3", "--min-bytes=64KiB", "--max-bytes=16MiB", "--json")
    )
    return {
        f"{figure['who']}, {figure['bytes'] >> 10} KiB, us": (figure["time_us"], False)
        for figure in found["figures"]
        if figure["bytes"] in (1 << 16, 1 << 20, 1 << 24) and figure["who"] != "gloo's own"
    }


def launch(tree):
    found = json.loads(run(tree / "bazel-bin/tests/bench/launch_bench", "--jobs=20", "--json"))
    return {
        f"{series}, {what.replace('_ms', '')}, ms": (figures["median"], False)
        for series, kinds in found.items()
        if isinstance(kinds, dict)
        for what, figures in kinds.items()
        if isinstance(figures, dict) and what in ("last_main_ms", "finished_ms")
    }


def rendezvous(tree):
    found = json.loads(
        run(tree / "bazel-bin/tests/bench/rendezvous_bench", "--rounds=1", "--barriers=100", "--idle-seconds=1", "--json")
    )
    return {
        f"{what.replace('_ms', '')}, ms": (found["median"][what], False)
        for what in ("total_ms", "barrier_p50_ms", "nccl_ids_p50_ms")
    }


BENCHMARKS = {f"train: {name}": (lambda tree, of=of: train(tree, *of), TRAINING_TOLERANCE) for name, of in TRAININGS.items()}
BENCHMARKS |= {
    "allreduce_bench": (allreduce, TRAINING_TOLERANCE),
    "launch_bench": (launch, CONTROL_TOLERANCE),
    "rendezvous_bench": (rendezvous, CONTROL_TOLERANCE),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    chosen = {name: of for name, of in BENCHMARKS.items() if all(word in name for word in options.only)}
    values = {}  # (benchmark, metric) -> contestant -> values
    better = {}
    for number in range(options.rounds):
        for name, (measure, _) in chosen.items():
            for who, tree in (("old", options.base), ("new", ROOT), ("again", options.base)):
                for metric, (value, more) in measure(tree).items():
                    values.setdefault((name, metric), {}).setdefault(who, []).append(value)
                    better[name, metric] = more
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    lines = ["| benchmark | metric | old | new | new / old | old / old | tolerance | |", "|---|---|---|---|---|---|---|---|"]
    failed = 0
    for (name, metric), found in values.items():
        old, new, again = (statistics.median(found[who]) for who in ("old", "new", "again"))
        both = statistics.median(found["old"] + found["again"])
        tolerance = chosen[name][1]
        allowed = max(tolerance, abs(again / old - 1))
        loss = (both - new) / both if better[name, metric] else (new - both) / both
        passed = loss <= allowed
        failed += not passed
        lines.append(
            f"| {name} | {metric} | {both:,.4g} | {new:,.4g} | {new / both:.3f} | {again / old:.3f} | {tolerance:.0%} | "
            f"{'' if passed else 'slower'} |"
        )
    text = "\n".join(lines) + "\n"
    print(text)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
