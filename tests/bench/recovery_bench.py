#!/usr/bin/env python3
"""How long a training pauses, and how many steps it loses, when one of its ranks is killed; beside torchrun and torchft.

    bazel build //cli:muster //coordinator:muster-coordinator //trainer:muster-rank //worker:muster-worker
    tests/bench/peers/setup.sh          # once: a current PyTorch, with torchft, in .venv
    tests/bench/recovery_bench.py [--rounds 20] [--nodes 2] [--ranks-per-node 2] [--python PATH] [--only NAME]

resnet18 on images of 32 x 32 with one thread per rank. In each round, a rank chosen at random is killed with SIGKILL at
a random moment of a step, once some steps have been done since the last restart. "pause" is the time from the kill to
the end of the first step that follows, less the time of a step. "lost" is the number of steps that were completed before
the kill and are done again. torchrun has as many agents as there are nodes, and its program (peers/torch_restarts.py)
saves a checkpoint every 20 steps. torchft has a replica group per rank (peers/torchft_restarts.py): the others go on
without the killed one, which is started again at once; the next is killed when all have taken part in some steps. The timeouts of
torchft are those of its own example. The machine must be idle.
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
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.interpreters import with_torch  # noqa: E402
from tests.support.cluster import Cluster, parse_time, training_spec, wait_until  # noqa: E402

STEPS_BEFORE_KILL = 6
PEER = ROOT / "tests/bench/peers/torch_restarts.py"
TORCHFT_PEER = ROOT / "tests/bench/peers/torchft_restarts.py"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def json_lines(path):
    """The complete lines of a file."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def step_seconds(steps):
    times = [step["time"] for step in steps]
    return statistics.median([b - a for a, b in zip(times, times[1:])]) if len(times) > 1 else 0


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
    """The peer under torchrun; a generation begins with a kill, and torchrun may start rank 0 more than once in it."""

    def __init__(self, directory, python, args):
        self.log = pathlib.Path(directory) / "steps"
        port = free_port()
        self.agents = [subprocess.Popen(
            [python, "-m", "torch.distributed.run", f"--nnodes={args.nodes}", f"--node-rank={node}",
             f"--nproc-per-node={args.ranks_per_node}", "--max-restarts=1000", "--rdzv-backend=c10d",
             f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-conf=is_host={int(node == 0)}", str(PEER), f"--steps-file={self.log}",
             f"--state-file={directory}/checkpoint", f"--batch={args.global_batch}"],
            stdout=subprocess.DEVNULL, stderr=(pathlib.Path(directory) / f"agent-{node}.log").open("w"),
            # PyTorch 2.15 otherwise keeps one store for all restarts, in which ranks find the addresses of killed ones.
            env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
            for node in range(args.nodes)]
        self.earlier = [set()]  # of each generation: the processes that have been rank 0 before it

    def steps(self, generation):
        lines = json_lines(self.log)
        if len(self.earlier) < generation:
            self.earlier.append({line["pid"] for line in lines})
        return [line for line in lines if line["pid"] not in self.earlier[generation - 1]]

    def progress(self, generation):
        assert all(agent.poll() is None for agent in self.agents), "an agent of torchrun has ended"
        steps = self.steps(generation)
        if not steps:
            return None
        newest = [step for step in steps if step["pid"] == steps[-1]["pid"]]
        return newest[-1]["step"], steps[0]["time"], step_seconds(newest)

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


class Torchft:
    """The peer with torchft; a generation is the time between two deaths of replicas."""

    def __init__(self, directory, python, args):
        self.folder = pathlib.Path(directory) / "steps"
        self.folder.mkdir()
        self.log = (pathlib.Path(directory) / "torchft.log").open("w")
        self.world = args.nodes * args.ranks_per_node
        port = free_port()
        self.lighthouse = subprocess.Popen(
            [pathlib.Path(python).parent / "torchft_lighthouse", "--min_replicas=1", "--quorum_tick_ms=100",
             "--join_timeout_ms=10000", f"--bind=127.0.0.1:{port}"], stdout=self.log, stderr=self.log)
        self.command = [python, str(TORCHFT_PEER), f"--steps-folder={self.folder}",
                        f"--share={args.global_batch // self.world}"]
        self.env = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}"}
        self.replicas = [self.start(replica) for replica in range(self.world)]
        self.survivors = [list(self.replicas)]  # of each generation: the replicas that were there at its beginning
        self.begins = [0.0]                     # of each generation: the time of the death with which it begins
        self.stopping = threading.Event()
        self.supervisor = threading.Thread(target=self.supervise)
        self.supervisor.start()

    def start(self, replica):
        return subprocess.Popen([*self.command, f"--replica=replica-{replica}"], stdout=self.log, stderr=self.log,
                                env=self.env)

    def supervise(self):
        """Starts a replica again as soon as it has ended."""
        while not self.stopping.wait(0.02):
            for i, replica in enumerate(self.replicas):
                if replica.poll() is not None:
                    self.survivors.append([other for other in self.replicas if other is not replica])
                    self.begins.append(time.time())
                    self.replicas[i] = self.start(i)

    def progress(self, generation):
        if len(self.begins) < generation:
            return None
        steps = max(([step for step in json_lines(self.folder / str(replica.pid))
                      if step["time"] > self.begins[generation - 1]]
                     for replica in self.survivors[generation - 1]), key=len)
        if not steps:
            return None
        together = [step for step in steps if step["replicas"] == self.world]
        last = steps[-1] if len(together) > STEPS_BEFORE_KILL else steps[0]
        return last["step"], steps[0]["time"], step_seconds(together)

    def pids(self):
        return [replica.pid for replica in self.replicas]

    def first_step(self, generation):
        steps = [json_lines(self.folder / str(replica.pid)) for replica in self.survivors[generation - 1]]
        return min(step["step"] for step in max(steps, key=len) if step["time"] > self.begins[generation - 1]) - 1

    def stop(self):
        self.stopping.set()
        self.supervisor.join()
        for process in [*self.replicas, self.lighthouse]:
            process.kill()
            process.wait()


PEERS = {"torchrun": Torchrun, "torchft": Torchft}


def kill_one(training, generation, choose):
    """Kill a rank after some steps. Return the seconds of pause and of a step, and the number of lost steps."""
    first = wait_until(lambda: training.progress(generation), 120, "the first step")
    target = first[0] + STEPS_BEFORE_KILL
    before = wait_until(lambda: (p := training.progress(generation)) and p[0] >= target and p, 120, f"step {target}")
    time.sleep(choose.random() * before[2])  # not a wait: the kill is to hit any phase of a step
    step = training.progress(generation)[0]
    killed = time.time()
    os.kill(choose.choice(training.pids()), signal.SIGKILL)
    after = wait_until(lambda: training.progress(generation + 1), 300, "a step after the restart")
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
    parser.add_argument("--python", action="append", default=[], help="interpreter with PyTorch and torchft")
    parser.add_argument("--only", choices=["muster", *PEERS])
    args = parser.parse_args()
    summaries = []
    if args.only in (None, "muster"):
        with Cluster(nodes=args.nodes, slots=args.ranks_per_node) as cluster:
            training = Muster(cluster, args)
            summaries.append(measure("muster", training, args))
            cluster.muster("cancel", training.job)
    for name, peer in PEERS.items():
        if args.only not in (None, name):
            continue
        python, version = next(iter(with_torch(args.python).items()))
        with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
            training = peer(directory, python, args)
            stack.callback(training.stop)
            summaries.append(measure(f"{name}, PyTorch {version}", training, args))
    print("\n".join(summaries))


if __name__ == "__main__":
    main()
