#!/usr/bin/env python3
"""Images per second of the input pipeline, Muster against PyTorch, in one run.

    tests/bench/loader_bench.py [FOLDER] [--rounds 5] [--threads 1 2] [--python PATH]…

FOLDER contains train/CLASS/*.jpg; without it, 500x375 images of quality 90 are generated for the run. Both sides read,
decode, crop randomly, resize to 224, flip and normalize to float. Each round runs every contestant once, in turn, so
that other load on the machine affects all of them; the figures are medians over the rounds. PyTorch uses as many worker
processes as Muster uses loader threads; both also use a consuming thread, which normalizes in Muster and collects in
PyTorch. Two figures are reported: images/s of wall time per thread or worker, and images per second of CPU time, which
includes the consumer and depends little on other load. PyTorch runs in each form and version, and its best counts.
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

from tests.bench.interpreters import with_torch  # noqa: E402

FORMS = ["pil", "tensor"]
FIGURES = {"images_per_second": "images/s per thread", "images_per_cpu_second": "images per CPU second"}


def run(command):
    result = subprocess.run([str(word) for word in command], text=True, capture_output=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{command[0]}: {result.stderr.strip()}")
    return json.loads(result.stdout.strip().splitlines()[-1])


def compare(folder, threads, rounds, pythons):
    contestants = {"muster": [ROOT / "bazel-bin/tests/bench/loader_bench", folder, "--threads", threads]}
    for python, version in pythons.items():
        for form in FORMS:
            contestants[f"torch {version} {form}"] = [python, ROOT / "tests/bench/peers/torch_loader.py", folder,
                                                      "--form", form, "--workers", threads]
    results = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, command in contestants.items():
            results[name].append(run(command))

    print(f"{threads} thread(s), {rounds} rounds")
    for figure, words in FIGURES.items():
        divisor = threads if figure == "images_per_second" else 1
        medians = {name: statistics.median(r[figure] for r in rows) / divisor for name, rows in results.items()}
        for name, median in medians.items():
            values = " ".join(f"{r[figure] / divisor:.0f}" for r in results[name])
            print(f"  {name:30} {median:7.0f} {words:29} muster/it {medians['muster'] / median:5.2f}   ({values})")
        best = max(median for name, median in medians.items() if name != "muster")
        print(f"  muster against PyTorch's best, {words}: {medians['muster'] / best:.2f}x")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--python", action="append", default=[])
    args = parser.parse_args()
    pythons = with_torch(args.python)
    with tempfile.TemporaryDirectory(prefix="muster-bench.") as directory:
        folder = args.folder or directory
        if args.folder is None:
            subprocess.run(["/usr/bin/python3", "-B", str(ROOT / "tests/bench/make_jpeg_folder.py"), folder,
                            "--train=1000", "--val=10"], check=True)
        for threads in args.threads:
            compare(folder, threads, args.rounds, pythons)


if __name__ == "__main__":
    main()
