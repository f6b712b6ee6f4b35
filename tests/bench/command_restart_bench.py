#!/usr/bin/env python3
"""How soon the ranks of a command job run again after one of them was killed, beside torchrun.

    bazel build //cli:muster //coordinator:muster-coordinator //worker:muster-worker
    tests/bench/peers/setup.sh          # once: a current PyTorch in .venv
    tests/bench/command_restart_bench.py [--rounds 20] [--nodes 2] [--ranks-per-node 2] [--python PATH] [--only muster]

The program is a shell that notes the time and then waits. In each round a rank chosen at random is killed with SIGKILL.
"killed" is the time from there until all ranks of the next generation run, "verdict" the time from the coordinator's
decision to stop the generation until then. Of torchrun, with one agent per node, only the first is known.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.interpreters import with_torch  # noqa: E402
from tests.support.cluster import Cluster, parse_time, shell_spec, wait_until  # noqa: E402

# One line per rank and start: rank, pid (torchrun replaces $$), time. With a completed step, the restart that follows is
# not delayed.
SCRIPT = """echo "$RANK $BASHPID $EPOCHREALTIME" >> {}
echo "step=${{EPOCHREALTIME/./}}" >> ${{MUSTER_PROGRESS:-/dev/null}}; exec sleep 600"""


def starts(log, count):
    """The starts [(rank, pid, time)] once there are that many, else None."""
    lines = log.read_text(encoding="ascii").splitlines() if log.exists() else []
    return [(int(r), int(p), float(t)) for r, p, t in map(str.split, lines)] if len(lines) >= count else None


def run_rounds(name, log, world, args, is_ready, verdict):
    choose = random.Random(1)
    rounds = []
    for i in range(args.rounds):
        running = wait_until(lambda n=i: starts(log, world * (n + 1)), 60, f"start {i + 1}")[-world:]
        wait_until(lambda r=running: is_ready(r), 60, "the ranks' progress")
        killed = time.time()
        os.kill(choose.choice(running)[1], signal.SIGKILL)
        again = wait_until(lambda n=i: starts(log, world * (n + 2)), 60, f"start {i + 2}")[-world:]
        last = max(t for _, _, t in again)
        rounds.append((last - killed, last - verdict() if verdict else None))
        print(f"{name}: killed {rounds[-1][0]:.3f} s" + (f", verdict {rounds[-1][1]:.3f} s" if verdict else ""),
              flush=True)
    text = []
    for label, values in zip(("killed", "verdict"), zip(*rounds)):
        if values[0] is not None:
            text.append(f"{label} median {statistics.median(values):.3f} s, worst {max(values):.3f} s")
    return f"{name}: {'; '.join(text)}"


def muster(args):
    with Cluster(nodes=args.nodes, slots=args.ranks_per_node) as cluster:
        log = cluster.directory / "starts"
        job = cluster.submit(shell_spec("restarts", SCRIPT.format(log), nodes=args.nodes, ranks=args.ranks_per_node,
                                        restart={"max": 1000}))

        def is_ready(running):
            return int(cluster.get(job).get("progress", {}).get("step", 0)) >= int(min(t for _, _, t in running) * 1e6) - 1

        def verdict():
            events = json.loads(cluster.muster("describe", job, "--events", "-o", "json").stdout)["events"]
            return parse_time([event for event in events if event["type"] == "Stopping"][-1]["time"])

        summary = run_rounds("muster", log, args.nodes * args.ranks_per_node, args, is_ready, verdict)
        cluster.muster("cancel", job)
        return summary


def torchrun(args):
    python, version = next(iter(with_torch(args.python).items()))
    with tempfile.TemporaryDirectory() as directory:
        log = pathlib.Path(directory) / "starts"
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        agents = [subprocess.Popen(
            [python, "-m", "torch.distributed.run", f"--nnodes={args.nodes}", f"--nproc-per-node={args.ranks_per_node}",
             "--max-restarts=1000", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
             f"--rdzv-conf=is_host={int(node == 0)}", "--no-python", "/bin/bash", "-c", SCRIPT.format(log)],
            stdout=subprocess.DEVNULL, stderr=(pathlib.Path(directory) / f"agent-{node}.log").open("w"))
            for node in range(args.nodes)]
        try:
            return run_rounds(f"torchrun {version}", log, args.nodes * args.ranks_per_node, args, lambda _: True, None)
        finally:
            for agent in agents:
                agent.terminate()
            for agent in agents:
                agent.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks-per-node", type=int, default=2)
    parser.add_argument("--python", action="append", default=[], help="interpreter with PyTorch for torchrun")
    parser.add_argument("--only", choices=["muster", "torchrun"])
    args = parser.parse_args()
    summaries = [contestant(args) for contestant in (muster, torchrun) if args.only in (None, contestant.__name__)]
    print("\n".join(summaries))


if __name__ == "__main__":
    main()
