#!/usr/bin/env python3
"""Training throughput of small_cnn, Muster beside PyTorch DDP, in one run.

    tests/bench/train_bench.py [--rounds 5] [--python PATH]…

Each round runs every contestant once, in turn, so that a busy machine is busy for all of them; the figures are
medians over the rounds. PyTorch is tried in each form given by FORMS and its best median counts. --python names an
interpreter with PyTorch, several times for several versions; by default those of .venv and of the system that have
one. Muster runs through a real coordinator and worker.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.interpreters import with_torch  # noqa: E402
from tests.support.cluster import Cluster, training_spec  # noqa: E402

FORMS = {"default": [], "channels_last": ["--channels-last"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--python", action="append", default=[])
    args = parser.parse_args()
    pythons = with_torch(args.python)

    rates = {}
    with Cluster(nodes=1, slots=2) as cluster:
        for i in range(args.rounds):
            job = cluster.run(training_spec(f"bench-{i}", global_batch=args.batch, max_steps=args.steps,
                                            resources={"nodes": 1, "ranks_per_node": 2, "threads_per_rank": 1}))
            rates.setdefault("muster", []).append(job["summary"]["images_per_second"])
            for python, version in pythons.items():
                for form, flags in FORMS.items():
                    out = subprocess.run(
                        [python, str(ROOT / "tests/bench/peers/torch_ddp.py"), "--batch", str(args.batch), *flags],
                        text=True, capture_output=True, check=True).stdout
                    rate = json.loads(out.strip().splitlines()[-1])["images_per_second"]
                    rates.setdefault(f"torch {version} {form}", []).append(rate)

    medians = {name: statistics.median(values) for name, values in rates.items()}
    print(f"small_cnn 28x28, global batch {args.batch}, 2 ranks x 1 thread, float32, {args.rounds} rounds")
    for name, median in medians.items():
        values = " ".join(f"{v:.0f}" for v in rates[name])
        print(f"{name:34} {median:9.0f} images/s   muster/it {medians['muster'] / median:5.2f}   ({values})")
    best = max(v for name, v in medians.items() if name != "muster")
    print(f"muster against PyTorch's best: {medians['muster'] / best:.2f}x")


if __name__ == "__main__":
    main()
