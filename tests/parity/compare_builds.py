#!/usr/bin/env python3
"""Compares training results of two builds of Muster: the same spec and seed must give identical bits.

    tests/parity/compare_builds.py [--base COMMIT | --base-build DIRECTORY] [--only WORD]… [--steps 20]

Builds COMMIT (default: HEAD~1) in a separate worktree, or uses DIRECTORY, a tree that is already built. Trains each
strategy on each permitted backend in each precision with both builds on this machine, and compares the SHA-256 digests
of the final checkpoints' safetensors files. Prints a line per job; exits with status 1 if any digest differs.
"""

import argparse
import hashlib
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("//cli:muster", "//coordinator:muster-coordinator", "//worker:all")
PRECISIONS = ("O0", "O1", "O2", "O3")


def strategy(name, nodes=1, ranks=1, devices=1, backend="auto", **options):
    return {
        "strategy": {"name": name, **options},
        "resources": {"nodes": nodes, "ranks_per_node": ranks, "devices_per_rank": str(devices)},
        "backend": backend,
    }


def pipeline(**placement):
    return strategy("pipeline", pipeline={"stages": 2, "micro_batches": 4, "cuts": ["4"]}, **placement)


JOBS = {
    "ddp, one rank": strategy("ddp"),
    "ddp, shm": strategy("ddp", ranks=2, backend="shm"),
    "ddp, gloo": strategy("ddp", nodes=2, backend="gloo"),
    "ddp, gloo on one node": strategy("ddp", ranks=2, backend="gloo"),
    "ddp, hierarchical": strategy("ddp", nodes=2, ranks=2, backend="hierarchical"),
    "zero1, shm": strategy("ddp", ranks=2, backend="shm", shard_optimizer=True),
    "zero1, gloo": strategy("ddp", nodes=2, backend="gloo", shard_optimizer=True),
    "zero1, hierarchical": strategy("ddp", nodes=2, ranks=2, backend="hierarchical", shard_optimizer=True),
    "dp": strategy("dp", devices=2),
    "hybrid, gloo": strategy("hybrid", nodes=2, devices=2, backend="gloo"),
    "pipeline, shm": pipeline(ranks=2, backend="shm"),
    "pipeline, gloo": pipeline(nodes=2, backend="gloo"),
    "pipeline, two replicas": pipeline(ranks=4, backend="shm"),
}


def spec(name, job, precision, steps, directory):
    train = {
        "model": {"name": "small_cnn"},
        "dataset": {"name": "fashion_mnist", "path": "/usr/share/datasets/fashion-mnist"},
        "max_steps": steps,
        "global_batch": 64,
        "image_size": 28,
        "optimizer": {"name": "sgd", "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 5e-4},
        "augment": {"crop_padding": 2, "flip": True},
        "precision": precision,
        "seed": 1,
        "strategy": job["strategy"],
        "checkpoint": {"dir": str(directory)},
    }
    return {"name": name, "train": train, "resources": job["resources"], "backend": job["backend"]}


def built(commit, directory):
    """Creates a worktree of `commit` and builds its programs."""
    subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", directory, commit], check=True)
    subprocess.run(["bazel", "build", *PROGRAMS], cwd=directory, check=True)
    return directory


def digest(build, job, precision, steps):
    """(digest of the final checkpoint's tensors, images/s); raises RuntimeError if the job fails."""
    with tempfile.TemporaryDirectory(prefix="muster-compare.") as folder:
        folder = pathlib.Path(folder)
        file = folder / "job.json"
        file.write_text(json.dumps(spec("compare", job, precision, steps, folder / "checkpoints")), encoding="utf-8")
        run = subprocess.run(
            [build / "bazel-bin/cli/muster", "local", file, "-o", "json"], capture_output=True, text=True, check=False
        )
        if run.returncode != 0:
            raise RuntimeError(run.stderr.strip().splitlines()[-1] if run.stderr.strip() else f"exit {run.returncode}")
        tensors = sorted((folder / "checkpoints").rglob("*.safetensors"))
        if not tensors:
            raise RuntimeError("no checkpoint was written")
        newest = [t for t in tensors if t.parent == tensors[-1].parent]
        content = hashlib.sha256()
        for file in newest:
            content.update(file.name.encode() + file.read_bytes())
        return content.hexdigest(), json.loads(run.stdout)["summary"].get("images_per_second", 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="HEAD~1")
    parser.add_argument("--base-build", type=pathlib.Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-base.") as folder:
        base = options.base_build or built(options.base, pathlib.Path(folder) / "tree")
        try:
            return compare(base, options)
        finally:
            if options.base_build is None:
                subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", base], check=False)


def compare(base, options):
    differing = compared = 0
    for (name, job), precision in itertools.product(JOBS.items(), PRECISIONS):
        what = f"{name}, {precision}"
        if not all(word in what for word in options.only):
            continue
        try:
            (old, _), (new, _) = (digest(build, job, precision, options.steps) for build in (base, ROOT))
        except RuntimeError as error:
            print(f"FAILED    {what}: {error}", flush=True)
            differing += 1
            continue
        compared += 1
        differing += old != new
        print(f"{'same     ' if old == new else 'DIFFERENT'} {what}: {old[:12]} {new[:12]}", flush=True)
    print(f"{compared} compared, {differing} different or failed")
    return 1 if differing or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
