#!/usr/bin/env python3
"""How long a training pauses, and how many steps it loses, when one of its ranks is killed; beside torchrun.

    bazel build //cli:muster //coordinator:muster-coordinator //trainer:muster-rank //worker:muster-worker
    tests/bench/peers/setup.sh          # once: a current PyTorch in .venv
    tests/bench/recovery_bench.py [--rounds 20] [--nodes 2] [--ranks-per-node 2] [--python PATH]

resnet18 on images of 32 x 32 with one thread per rank. In each round, a rank chosen at random is killed with SIGKILL at
a random moment of a step, once some steps have been done since the last restart. "pause" is the time from the kill to
the end of the first step that follows, less the time of a step. "lost" is the number of steps that were completed before
the kill and are done again. torchrun has as many agents as there are nodes, and its program (peers/torch_restarts.py)
saves a checkpoint every 20 steps. The machine must be idle.
"""

import argparse
import contextlib
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
from tests.support.cluster import Cluster, parse_time, training_spec, wait_until  # noqa: E402

STEPS_BEFORE_KILL = 6
PEER = ROOT / "tests/bench/peers/torch_restarts.py"


class Muster:
    """A training job."""

    def __init__(self, cluster, args):
        self.cluster = cluster
        self.job = cluster.submit(training_spec(
            "recovery", model={"name": "resnet18"}, image_size=32, global_batch=args.global_batch, max_steps=1_000_000,
            resources={"nodes": args.nodes, "ranks_per_node": args.ranks_per_node}, restart={"max": 3}))

    def progress(self, generation):
        """(step, time of the generation's first step, seconds per step) after a step of it; otherwise None."""
        status = self.cluster.get(self.job)
        assert status["state"] not in ("FAILED", "SUCCEEDED"), status
        progress = status.get("progress", {})
        if int(status["generation"]) != generation or "first_step_time" not in progress:
            return None
        return int(progress["step"]), parse_time(progress["first_step_time"]), progress["step_seconds"]

    def pids(self):
        return self.cluster.rank_pids()

    def first_step(self, _):
        return int(self.cluster.get(self.job).get("checkpoint", {}).get("resumed_step", 0))


class Torchrun:
    """The peer under torchrun; a generation is a process of rank 0."""

    def __init__(self, directory, python, args):
        self.log = pathlib.Path(directory) / "steps"
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.agents = [subprocess.Popen(
            [python, "-m", "torch.distributed.run", f"--nnodes={args.nodes}", f"--node-rank={node}",
             f"--nproc-per-node={args.ranks_per_node}", "--max-restarts=1000", "--rdzv-backend=c10d",
             f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-conf=is_host={int(node == 0)}", str(PEER), f"--steps-file={self.log}",
             f"--state-file={directory}/checkpoint", f"--batch={args.global_batch}"],
            stdout=subprocess.DEVNULL, stderr=(pathlib.Path(directory) / f"agent-{node}.log").open("w"),
            env={**os.environ, "OMP_NUM_THREADS": "1"}) for node in range(args.nodes)]

    def steps(self, generation):
        if not self.log.exists():
            return []
        lines = [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
        pids = list(dict.fromkeys(line["pid"] for line in lines))  # one per start of rank 0
        return [line for line in lines if line["pid"] == pids[generation - 1]] if len(pids) >= generation else []

    def progress(self, generation):
        assert all(agent.poll() is None for agent in self.agents), "an agent of torchrun has ended"
        steps = self.steps(generation)
        if not steps:
            return None
        times = [line["time"] for line in steps]
        seconds = statistics.median([b - a for a, b in zip(times, times[1:])]) if len(times) > 1 else 0
        return steps[-1]["step"], times[0], seconds

    def pids(self):
        pids = []
        for agent in self.agents:
            children = pathlib.Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text(encoding="ascii").split()
            pids += [int(pid) for pid in children
                     if PEER.name.encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
        return pids

    def first_step(self, generation):
        return self.steps(generation)[0]["step"] - 1

    def stop(self):
        for agent in self.agents:
            agent.terminate()
        for agent in self.agents:
            agent.wait()


def kill_one(training, generation, choose):
    """Kill a rank after some steps. Return the seconds of pause and of a step, and the number of lost steps."""
    first = wait_until(lambda: training.progress(generation), 120, "the first step")
    target = first[0] + STEPS_BEFORE_KILL
    before = wait_until(lambda: (p := training.progress(generation)) and p[0] >= target and p, 120, f"step {target}")
    time.sleep(choose.random() * before[2])  # not a wait: the kill is to hit any phase of a step
    step = training.progress(generation)[0]
    killed = time.time()
    os.kill(choose.choice(training.pids()), signal.SIGKILL)
    after = wait_until(lambda: training.progress(generation + 1), 120, "a step after the restart")
    return after[1] - killed - before[2], before[2], max(0, step - training.first_step(generation + 1))


def measure(name, training, args):
    choose = random.Random(args.seed)
    rounds = []
    for generation in range(1, args.rounds + 1):
        rounds.append(kill_one(training, generation, choose))
        print("{}: pause {:.2f} s, step {:.2f} s, lost {}".format(name, *rounds[-1]), flush=True)
    pauses = [pause for pause, _, _ in rounds]
    lost = [steps for _, _, steps in rounds]
    return (f"{name}: pause median {statistics.median(pauses):.2f} s, worst {max(pauses):.2f} s; "
            f"lost steps median {statistics.median(lost)}, worst {max(lost)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks-per-node", type=int, default=2)
    parser.add_argument("--global-batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", action="append", default=[], help="interpreter with PyTorch for torchrun")
    parser.add_argument("--only", choices=["muster", "torchrun"])
    args = parser.parse_args()
    summaries = []
    if args.only != "torchrun":
        with Cluster(nodes=args.nodes, slots=args.ranks_per_node) as cluster:
            training = Muster(cluster, args)
            summaries.append(measure("muster", training, args))
            cluster.muster("cancel", training.job)
    if args.only != "muster":
        python, version = next(iter(with_torch(args.python).items()))
        with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
            training = Torchrun(directory, python, args)
            stack.callback(training.stop)
            summaries.append(measure(f"torchrun {version}", training, args))
    print("\n".join(summaries))


if __name__ == "__main__":
    main()
