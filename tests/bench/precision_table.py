#!/usr/bin/env python3
"""Test accuracy by precision: trains a recipe in each precision with several seeds and prints mean and spread.

    tests/bench/precision_table.py [--recipe deploy/examples/fashion_mnist_fast.yaml] [--seeds 3] [--others 1]
        [--output PREFIX]

O0 and O2 in bfloat16 use seeds 1 to --seeds, the others seeds 1 to --others. 2 ranks x 1 thread, with a real
coordinator and worker. --output writes PREFIX.md and PREFIX.json; trainings in an existing PREFIX.json of the same
recipe are not repeated, so that more seeds can be added later.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.accuracy_bench import read_recipe  # noqa: E402
from tests.bench.results_file import ResultsFile, markdown_table  # noqa: E402
from tests.support.cluster import Cluster  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Precision:
    level: str
    dtype: str = ""
    main: bool = False  # trained with all seeds

    def __str__(self):
        return f"{self.level} {self.dtype or 'float32'}"


PRECISIONS = [Precision("O0", main=True), Precision("O1", "bfloat16"), Precision("O2", "bfloat16", main=True),
              Precision("O3", "bfloat16"), Precision("O2", "float16")]


def train(cluster, recipe, precision, seed):
    words = {"mixed_precision": {"dtype": precision.dtype}} if precision.dtype else {}
    spec = {
        "name": f"{precision}-{seed}".lower().replace(" ", "-"),
        "train": {**{k: v for k, v in recipe["train"].items() if k not in ("tensorboard", "mixed_precision")},
                  "checkpoint": {"keep": 0}, "precision": precision.level, "seed": seed, **words},
        "resources": {"nodes": 1, "ranks_per_node": 2, "threads_per_rank": 1},
    }
    summary = cluster.run(spec, timeout=4 * 3600)["summary"]
    return {"seed": seed, "test_accuracy": summary["test_accuracy"], "final_loss": summary["final_loss"],
            "images_per_second": summary["images_per_second"], "skipped_steps": int(summary.get("skipped_steps", 0))}


def report(results):
    """A Markdown table of `results`, {precision: [results of train]}."""
    reference = [run["test_accuracy"] for run in results.get(str(PRECISIONS[0]), [])]
    lines = []
    for precision in PRECISIONS:
        runs = results.get(str(precision), [])
        if not runs:
            continue
        accuracies = [100 * run["test_accuracy"] for run in runs]
        mean = statistics.mean(accuracies)
        difference = f"{mean - 100 * statistics.mean(reference):+.2f}" if reference else ""
        spread = f"{min(accuracies):.2f} to {max(accuracies):.2f}" if len(runs) > 1 else ""
        lines.append([str(precision), str(len(runs)), f"{mean:.2f} %", spread, difference,
                      str(sum(run["skipped_steps"] for run in runs)),
                      f"{statistics.median(run['images_per_second'] for run in runs):.0f}"])
    return markdown_table(["precision", "seeds", "test accuracy", "from, to", "points from O0", "skipped steps", "images/s"],
                          lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default=str(ROOT / "deploy/examples/fashion_mnist_fast.yaml"))
    parser.add_argument("--epochs", type=float, help="overrides the recipe's epochs")
    parser.add_argument("--precision", action="append", choices=[str(p) for p in PRECISIONS],
                        help="may be repeated; default: all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--others", type=int, default=1)
    parser.add_argument("--output", help="prefix of the .md and .json files to write")
    args = parser.parse_args()
    recipe = read_recipe(args.recipe, args.epochs)

    settings = {"recipe": pathlib.Path(args.recipe).name, "train": recipe["train"]}
    results = ResultsFile(args.output and f"{args.output}.json", settings)
    with Cluster(nodes=1, slots=2) as cluster:
        for precision in PRECISIONS:
            if args.precision and str(precision) not in args.precision:
                continue
            done = {run["seed"] for run in results.of(str(precision))}
            for seed in range(1, (args.seeds if precision.main else args.others) + 1):
                if seed in done:
                    continue
                results.add(str(precision), train(cluster, recipe, precision, seed))
                print(f"{precision}: {json.dumps(results.of(str(precision))[-1])}", file=sys.stderr, flush=True)
    text = report(results.data["results"])
    print(text, end="")
    if args.output:
        pathlib.Path(f"{args.output}.md").write_text(text)


if __name__ == "__main__":
    main()
