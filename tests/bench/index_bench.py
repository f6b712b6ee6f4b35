#!/usr/bin/env python3
"""Time that the ranks of a job need to open a folder of many small images and join, on one node.

    bazel build //cli:muster //coordinator:muster-coordinator //trainer:muster-rank //worker:muster-worker \\
        //tests/faults:libslow-disk.so
    tests/bench/index_bench.py [--files 100000] [--ranks 4] [--jobs 3] [--stat-microseconds 0]

Creates the images as hard links. --stat-microseconds delays each look at a file, as a network file system does.
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time
import urllib.request

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.cluster import Cluster, training_spec  # noqa: E402
from tests.support.daemon import binary  # noqa: E402

PER_CLASS = 1000


def make_images(folder, files):
    """Create the training images and one image per class to evaluate, long before they are listed."""
    for label in range(max(2, files // PER_CLASS)):
        for split, count in (("train", PER_CLASS), ("val", 1)):
            images = folder / split / f"class-{label:04}"
            images.mkdir(parents=True)
            Image.new("RGB", (32, 32), (label % 256, 20, 30)).save(images / "0.jpg")
            for i in range(1, count):
                os.link(images / "0.jpg", images / f"{i}.jpg")
    hour_ago = time.time() - 3600
    for path, _, _ in os.walk(folder):
        os.utime(path, (hour_ago, hour_ago))


def join_seconds(cluster):
    """Total time of all jobs' join phases."""
    with urllib.request.urlopen(f"http://{cluster.http}/metrics") as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines
               if line.startswith("muster_rendezvous_duration_seconds_sum") and "join" in line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--stat-microseconds", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-index.") as folder, Cluster() as cluster:
        images = pathlib.Path(folder) / "images"
        make_images(images, options.files)
        program = cluster.directory / "rank"
        program.write_text(f"#!/bin/sh\nexport LD_PRELOAD={binary('tests/faults/libslow-disk.so')}\n"
                           f"export SLOW_PATH={images} SLOW_STAT_MICROSECONDS={options.stat_microseconds}\n"
                           f'exec {binary("trainer/muster-rank")} "$@"\n')
        program.chmod(0o755)
        cluster.start_worker("node-1", options.ranks, flags=[f"--rank-binary={program}"])
        cluster.wait_for_nodes(1)
        before = 0
        for job in range(options.jobs):
            cluster.run(training_spec(
                f"index-{job}", dataset={"name": "image_folder", "path": str(images)}, image_size=32, max_steps=1,
                global_batch=4 * options.ranks, checkpoint={"keep": 0},
                resources={"nodes": 1, "ranks_per_node": options.ranks}), timeout=600)
            after = join_seconds(cluster)
            print(f"job {job + 1}: {after - before:.2f} s")
            before = after


if __name__ == "__main__":
    main()
