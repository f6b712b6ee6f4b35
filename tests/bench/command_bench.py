#!/usr/bin/env python3
"""Total run time of an unmodified PyTorch DDP script, started by Muster and by torchrun, in one run.

    bazel build //cli:muster //coordinator:muster-coordinator //worker:muster-worker
    tests/bench/peers/setup.sh          # once: a current PyTorch in .venv
    tests/bench/command_bench.py [--rounds 7] [--ranks 2] [--python PATH] [-- SCRIPT ARGUMENTS…]

The contestants, each timed as a process from start to exit, one after the other in every round:

    torchrun        torchrun --standalone --nproc-per-node RANKS
    muster run      with a coordinator and a worker that are already running, as on a cluster
    muster local    starts and stops its own coordinator and worker

The script is peers/ddp_script.py, run by the same interpreter in all three; its losses must be the same. The start-up of
the launchers alone is timed with /bin/true in place of the script. Figures are medians over the rounds; a warm-up round,
which reads files from disk, does not count.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.cluster import Cluster  # noqa: E402
from tests.support.daemon import binary  # noqa: E402

SCRIPT = str(ROOT / "tests/bench/peers/ddp_script.py")


def timed(argv, env):
    """Run time of the program in seconds, and its output."""
    start = time.monotonic()
    result = subprocess.run(argv, env=env, text=True, capture_output=True, check=False)
    seconds = time.monotonic() - start
    if result.returncode != 0:
        sys.exit(f"{argv} exited {result.returncode}\n{result.stdout}\n{result.stderr}")
    return seconds, result.stdout


def losses_in(text):
    """Losses from the script's JSON line, which a launcher may have prefixed with a rank."""
    line = next(line for line in text.splitlines() if '"losses"' in line)
    return json.loads(line[line.index("{"):])["losses"]


def contest(contestants, rounds, env):
    """Run times of each contestant in seconds, and the output of its last run."""
    seconds = {name: [] for name in contestants}
    outputs = {}
    for i in range(rounds + 1):
        for name, argv in contestants.items():
            took, outputs[name] = timed(argv, env)
            if i > 0:
                seconds[name].append(took)
    return seconds, outputs


def print_medians(seconds):
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, values in seconds.items():
        print(f"{name:14} median {medians[name]:6.2f}   torchrun/it {medians['torchrun'] / medians[name]:5.2f}   "
              f"({' '.join(f'{v:.2f}' for v in values)})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"))
    parser.add_argument("script_arguments", nargs="*")
    args = parser.parse_args()
    if not os.path.exists(args.python):
        sys.exit(f"no {args.python}; run tests/bench/peers/setup.sh")

    ranks = f"--nproc-per-node={args.ranks}"
    # Underscores: PyTorch 1.13 does not know the names with hyphens.
    torchrun = [args.python, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={args.ranks}"]
    script = [SCRIPT, *args.script_arguments]
    true = "/bin/true"
    muster = binary("cli/muster")
    with Cluster(nodes=1, slots=args.ranks) as cluster:
        env = cluster.client_env()
        seconds, outputs = contest({
            "torchrun": [*torchrun, *script],
            "muster run": [muster, "run", ranks, "--", args.python, *script],
            "muster local": [muster, "local", ranks, "--", args.python, *script],
        }, args.rounds, env)
        start_up, _ = contest({
            "torchrun": [*torchrun, "--no_python", true],
            "muster run": [muster, "run", ranks, "--", true],
            "muster local": [muster, "local", ranks, "--", true],
        }, args.rounds, env)

    print(f"PyTorch DDP script, {args.ranks} ranks, total run time in seconds, {args.rounds} rounds")
    print_medians(seconds)
    losses = {name: losses_in(text) for name, text in outputs.items()}
    print(f"losses {losses['torchrun']}: " + ("the same under all" if len(set(map(str, losses.values()))) == 1
                                              else f"DIFFERENT: {losses}"))
    print(f"{true}, {args.ranks} ranks, total run time in seconds")
    print_medians(start_up)


if __name__ == "__main__":
    main()
