#!/usr/bin/env python3
"""Measures time to a test accuracy, Muster against PyTorch DDP with the same recipe and precision.

    tests/bench/accuracy_bench.py [--recipe deploy/examples/fashion_mnist_fast.yaml] [--precision O0|O2]
        [--rounds 3] [--target 0.93] [--output PREFIX]

2 ranks x 1 thread. Each round uses its own seed and trains with every contestant in turn. Both evaluate on the whole
test set after each epoch; the first epoch that reaches the target counts. Both clocks start with the first step; times
are reported with and without the evaluations. Muster's times come from the events that rank 0 writes for TensorBoard:
the end of each epoch's last step, and of each evaluation. PyTorch (peers/torch_accuracy.py) receives the recipe's
values as flags and runs eager and compiled, channels_last; the better form counts. O2 is autocast to bfloat16.

--output writes PREFIX.md and PREFIX.json; runs in an existing PREFIX.json with the same settings are not repeated.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.event_file import read_scalars  # noqa: E402
from tests.bench.interpreters import with_torch  # noqa: E402
from tests.bench.results_file import ResultsFile, markdown_table  # noqa: E402
from tests.support.cluster import Cluster, parse_time  # noqa: E402
from tests.support.daemon import binary  # noqa: E402

TRAINING_IMAGES = 60000
FORMS = {"eager": [], "compile": ["--compile"]}


def read_recipe(path, epochs=None):
    """The job of a YAML file, with defaults filled in."""
    more = ["--set", f"train.epochs={epochs}"] if epochs else []
    out = subprocess.run([binary("cli/muster"), "spec", "validate", str(path), "-o", "json", *more], text=True,
                         capture_output=True, check=True).stdout
    return json.loads(out)


def steps_per_epoch(train):
    return math.ceil(TRAINING_IMAGES / train["global_batch"])


# ---- Muster

def time_to_target(scalars, first_step_time, step_seconds, target):
    """When a training reached the target, from its events; None if it did not.

    `first_step_time` is the end of the first step, which took `step_seconds`.
    """
    epoch_ends = {step: time for step, _, time in scalars["train/loss"]}
    start = first_step_time - step_seconds
    evaluating = 0.0
    for epoch, (step, accuracy, time) in enumerate(scalars["test/accuracy"], 1):
        evaluating += time - epoch_ends[step]
        if accuracy >= target:
            return {"epoch": epoch, "seconds": time - start, "training_seconds": time - start - evaluating}
    return None


def run_muster(cluster, recipe, name, precision, seed, target):
    events = cluster.directory / f"events-{name}"
    job = {
        "name": name,
        "train": {**recipe["train"], "seed": seed, "precision": precision, "evaluate_every_epochs": 1,
                  "tensorboard": {"dir": str(events), "every_steps": steps_per_epoch(recipe["train"])}},
        "resources": {"nodes": 1, "ranks_per_node": 2, "threads_per_rank": 1},
    }
    job["train"]["checkpoint"] = {"keep": 0}
    if precision == "O0":
        job["train"].pop("mixed_precision", None)
    summary = cluster.run(job, timeout=4 * 3600)["summary"]
    scalars = read_scalars(events)
    return {
        "test_accuracy": summary["test_accuracy"],
        "accuracies": [accuracy for _, accuracy, _ in scalars["test/accuracy"]],
        "images_per_second": summary["images_per_second"],
        "reached": time_to_target(scalars, parse_time(summary["first_step_time"]), summary["median_step_seconds"],
                                  target),
    }


# ---- PyTorch

def peer_flags(train):
    """torch_accuracy.py's flags for a recipe; exits the program for unsupported options."""
    optimizer, schedule, augment = train["optimizer"], train["schedule"], train.get("augment", {})
    known = (train["model"]["name"] == "small_cnn" and optimizer["name"] == "sgd" and schedule["name"] == "cosine"
             and set(augment) <= {"crop_padding", "flip"} and not optimizer.get("clip_norm")
             and not optimizer.get("exclude_norm_and_bias") and train.get("accumulation_steps", 1) == 1)
    if not known:
        sys.exit("peers/torch_accuracy.py does not support this recipe; it supports small_cnn, sgd, cosine, crop_padding and flip")
    numbers = {
        "--epochs": int(train["epochs"]), "--batch": train["global_batch"],
        "--learning-rate": optimizer["learning_rate"], "--momentum": optimizer["momentum"],
        "--weight-decay": optimizer["weight_decay"], "--warmup-epochs": schedule["warmup_epochs"],
        "--crop-padding": augment.get("crop_padding", 0), "--dropout": train["model"].get("dropout", 0),
        "--label-smoothing": train["objective"]["label_smoothing"], "--ema-decay": train.get("ema", {}).get("decay", 0),
        "--data": train["dataset"]["path"],
    }
    words = [text for flag, value in numbers.items() for text in (flag, str(value))]
    return (words + (["--nesterov"] if optimizer.get("nesterov") else [])
            + (["--flip"] if augment.get("flip") else []))


def run_peer(python, form, recipe, precision, seed, target):
    command = [python, str(ROOT / "tests/bench/peers/torch_accuracy.py"), *peer_flags(recipe["train"]),
               f"--seed={seed}", f"--target={target}", *FORMS[form], *(["--amp"] if precision == "O2" else [])]
    result = subprocess.run(command, text=True, capture_output=True, check=False)
    if result.returncode != 0:
        print(f"{' '.join(command)} failed:\n{result.stderr[-2000:]}", file=sys.stderr)
        return None
    lines = [json.loads(line) for line in result.stdout.strip().splitlines()]
    return {"test_accuracy": lines[-1]["test_accuracy"], "accuracies": [line["test_accuracy"] for line in lines[:-1]],
            "images_per_second": lines[-1]["images_per_second"], "reached": lines[-1]["reached"]}


# ---- figures

def median_of(runs, field):
    """Median over the runs that reached the target; None unless most did."""
    values = [run["reached"][field] for run in runs if run is not None and run["reached"] is not None]
    return statistics.median(values) if 2 * len(values) > len(runs) else None


def rows_of(results, precision):
    """Result rows of all contestants, Muster first."""
    rows = []
    for key, runs in results.items():
        if key.startswith(f"{precision}/"):
            done = [run for run in runs if run is not None]
            rows.append({
                "precision": precision, "contestant": key.split("/", 1)[1], "runs": len(runs),
                "reached": sum(run["reached"] is not None for run in done), "epoch": median_of(runs, "epoch"),
                "seconds": median_of(runs, "seconds"), "training_seconds": median_of(runs, "training_seconds"),
                "test_accuracy": statistics.mean(run["test_accuracy"] for run in done) if done else None})
    return rows


def ratio(rows, field):
    """Muster's seconds divided by those of PyTorch's better form; None if either did not reach the target."""
    ours = [row[field] for row in rows if row["contestant"] == "muster"]
    peers = [row[field] for row in rows if row["contestant"] != "muster" and row[field] is not None]
    return ours[0] / min(peers) if ours and ours[0] is not None and peers else None


def report(results, precisions, target):
    def text(value, form):
        return "not reached" if value is None else form.format(value)

    lines, ratios = [], ""
    for precision in precisions:
        rows = rows_of(results, precision)
        for row in rows:
            lines.append([precision, row["contestant"], f"{row['reached']} of {row['runs']}", text(row["epoch"], "{:.0f}"),
                          text(row["seconds"], "{:.1f}"), text(row["training_seconds"], "{:.1f}"),
                          "" if row["test_accuracy"] is None else f"{row['test_accuracy']:.4f}"])
        values = [ratio(rows, field) for field in ("seconds", "training_seconds")]
        if None not in values:
            ratios += (f"\n{precision}: Muster needs {values[0]:.2f} of the time of PyTorch's better form, "
                       f"{values[1]:.2f} without the evaluations\n")
    header = ["precision", "", f"reached {target:.1%}", "in epoch", "seconds", "without evaluations", "accuracy at the end"]
    return markdown_table(header, lines) + ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default=str(ROOT / "deploy/examples/fashion_mnist_fast.yaml"))
    parser.add_argument("--epochs", type=int, help="overrides the recipe's epochs")
    parser.add_argument("--precision", action="append", choices=["O0", "O2"], help="may be repeated; default: both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--target", type=float, default=0.93)
    parser.add_argument("--form", action="append", choices=FORMS, help="PyTorch's forms, may be repeated; default: all")
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--no-peer", action="store_true", help="run Muster only")
    parser.add_argument("--output", help="prefix of the .md and .json files to write")
    args = parser.parse_args()
    precisions, forms = args.precision or ["O0", "O2"], args.form or list(FORMS)
    pythons = {} if args.no_peer else with_torch(args.python)
    recipe = read_recipe(args.recipe, args.epochs)

    settings = {"recipe": pathlib.Path(args.recipe).name, "train": recipe["train"], "target": args.target}
    results = ResultsFile(args.output and f"{args.output}.json", settings)
    with Cluster(nodes=1, slots=2) as cluster:
        for i in range(args.rounds):
            for precision in precisions:
                contestants = {"muster": lambda: run_muster(
                    cluster, recipe, f"accuracy-{precision}-{i}".lower(), precision, i + 1, args.target)}
                for python, version in pythons.items():
                    for form in forms:
                        contestants[f"PyTorch {version} {form}"] = (
                            lambda python=python, form=form: run_peer(python, form, recipe, precision, i + 1,
                                                                      args.target))
                for contestant, run in contestants.items():
                    key = f"{precision}/{contestant}"
                    if len(results.of(key)) > i or None in results.of(key):
                        continue
                    results.add(key, run())
                    print(f"seed {i + 1}  {key}: {json.dumps(results.of(key)[-1])}", file=sys.stderr, flush=True)
    text = report(results.data["results"], precisions, args.target)
    print(text, end="")
    if args.output:
        pathlib.Path(f"{args.output}.md").write_text(text)


if __name__ == "__main__":
    main()
