#!/usr/bin/env python3
"""Total run time of an unmodified PyTorch DDP script, started by Muster and by torchrun, in one run.

    bazel build //cli:muster //coordinator:muster-coordinator //worker:muster-worker
    tests/bench/peers/setup.sh          # once: a current PyTorch in .venv
    tests/bench/command_bench.py [--rounds 7] [--ranks 2] [--python PATH] [-- SCRIPT ARGUMENTS…]

The contestants, each timed as a process from start to exit, one after the other in every round:

    torchrun        torchrun --standalone --nproc-per-node RANKS
    muster run      with a coordinator and a worker that are already running, as on a cluster
    muster local    starts and stops its own coordinator and worker

The script is peers/ddp_script.py, run by the same interpreter in all three; its losses must be the same. Figures are
medians over the rounds; a warm-up round, which reads files from disk, does not count.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.cluster import Cluster, command_spec  # noqa: E402
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"))
    parser.add_argument("script_arguments", nargs="*")
    args = parser.parse_args()
    if not os.path.exists(args.python):
        sys.exit(f"no {args.python}; run tests/bench/peers/setup.sh")

    script = [SCRIPT, *args.script_arguments]
    seconds = {}
    losses = {}
    with tempfile.TemporaryDirectory() as directory, Cluster(nodes=1, slots=args.ranks) as cluster:
        spec = os.path.join(directory, "job.json")
        with open(spec, "w", encoding="utf-8") as f:
            json.dump(command_spec("ddp-script", args.python, *script, ranks=args.ranks), f)
        env = cluster.client_env()
        contestants = {
            "torchrun": [args.python, "-m", "torch.distributed.run", "--standalone",
                         f"--nproc-per-node={args.ranks}", *script],
            "muster run": [binary("cli/muster"), "run", spec],
            "muster local": [binary("cli/muster"), "local", spec],
        }
        for i in range(args.rounds + 1):
            for name, argv in contestants.items():
                took, out = timed(argv, env)
                losses[name] = losses_in(out)
                if i > 0:
                    seconds.setdefault(name, []).append(took)

    medians = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"PyTorch DDP script, {args.ranks} ranks, total run time in seconds, {args.rounds} rounds")
    for name, values in seconds.items():
        print(f"{name:14} median {medians[name]:6.2f}   torchrun/it {medians['torchrun'] / medians[name]:5.2f}   "
              f"({' '.join(f'{v:.2f}' for v in values)})")
    print(f"losses {losses['torchrun']}: " + ("the same under all" if len(set(map(str, losses.values()))) == 1
                                              else f"DIFFERENT: {losses}"))


if __name__ == "__main__":
    main()
