#!/usr/bin/env python3
"""How soon a slowed rank is named, and whether a rank is named without reason, with a real coordinator and workers.

    tests/bench/straggler_bench.py [--rounds 20] [--even-steps 5000] [--ranks 2] [--batch 192] [--slowdown 1.2]
                                   [--load bursts] [--output PREFIX]

named: one training job, of which one rank after the other is slowed down, by stopping it for a share of every 50 ms, until
it is named, and then left alone until its end is reported. A round is good if the first rank named is the slowed one, within
50 steps from the beginning of the slowdown. "steps" are counted until the coordinator shows the straggler.

even: a training job of even ranks under a load on the machine, in which no rank may be named. --load bursts: as many
processes as CPUs, not bound to one, which compute for 20 to 200 ms and sleep for 100 ms to 1 s, with nice 10; steady: one
such process that computes all the time; none.

Exits with 1 if a round is bad or a rank is named without reason. The ranks need a CPU each: run it on a quiet machine.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import random
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.results_file import markdown_table  # noqa: E402
from tests.support.cluster import Cluster, training_spec, wait_until  # noqa: E402
from tests.support.slowed import Slowed  # noqa: E402

LIMIT = 50  # steps
POLL_SECONDS = 0.2  # asking all the time would slow down the ranks
WARM_UP = 200  # steps before the first round; a rank is judged by more windows before


def burn(until):
    while time.monotonic() < until:
        pass


def load(kind, seed):
    """Runs until it is terminated."""
    os.nice(10)
    choose = random.Random(seed)
    while True:
        burn(time.monotonic() + choose.uniform(0.02, 0.2))
        if kind == "bursts":
            time.sleep(choose.uniform(0.1, 1))


class Load:
    """Context manager with a load on the machine."""

    def __init__(self, kind):
        count = {"none": 0, "steady": 1, "bursts": os.cpu_count()}[kind]
        self.processes = [multiprocessing.Process(target=load, args=(kind, seed), daemon=True) for seed in range(count)]

    def __enter__(self):
        for process in self.processes:
            process.start()

    def __exit__(self, *unused):
        for process in self.processes:
            process.terminate()
            process.join()


def submit(cluster, options):
    return cluster.submit(training_spec(
        "straggler", global_batch=options.batch * options.ranks, max_steps=10_000_000, checkpoint={"keep": 0},
        resources={"nodes": options.ranks, "ranks_per_node": 1}))


def events(cluster, job):
    found = json.loads(cluster.muster("describe", job, "--events", "-o", "json").stdout)["events"]
    return [event for event in found if event["type"].startswith("Straggler")]


def step_of(job):
    return int(job.get("progress", {}).get("step", 0))


def stragglers_of(job):
    return [straggler.get("rank", 0) for straggler in job.get("stragglers", [])]


def named(cluster, options):
    """A row per round: rank, who was named, steps until then."""
    job = submit(cluster, options)
    cluster.wait_for_step(job, WARM_UP, timeout=600)
    pids = {rank.get("rank", 0): int(rank["pid"]) for rank in cluster.describe(job)["ranks"]}
    rows = []
    for round_number in range(options.rounds):
        rank = round_number % options.ranks
        wait_until(lambda: not stragglers_of(cluster.get(job)), 60, "no straggler")
        begin = step_of(cluster.get(job))
        with Slowed(pids[rank], options.slowdown):
            start = time.monotonic()
            state = cluster.get(job)
            while not stragglers_of(state) and step_of(state) < begin + 10 * LIMIT:
                time.sleep(POLL_SECONDS)
                state = cluster.get(job)
            seconds = time.monotonic() - start
        names, steps = stragglers_of(state), step_of(state) - begin
        good = names == [rank] and steps <= LIMIT
        shown = [s.get("slowdown") for s in state.get("stragglers", [])]
        rows.append({"rank": rank, "named": names, "steps": steps, "seconds": seconds, "slowdown": shown, "good": good})
        print(f"round {round_number + 1}: rank {rank} slowed, named {names} after {steps} steps, {seconds:.1f} s, "
              f"slowdown {[round(s, 2) for s in shown]}{'' if good else '  BAD'}", flush=True)
    step_ms = 1000 * float(cluster.get(job)["progress"].get("step_seconds", 0))
    cluster.muster("cancel", job, "--grace", "0s")
    return rows, step_ms


def even(cluster, options):
    """Events about stragglers in a job without one."""
    job = submit(cluster, options)
    highest = 0.0
    with Load(options.load):
        while step_of(state := cluster.get(job)) < options.even_steps:
            assert state["state"] in ("QUEUED", "STARTING", "RUNNING"), state
            highest = max(highest, state.get("slowdown", 0))
            time.sleep(0.5)
    found = events(cluster, job)
    step_ms = 1000 * float(state["progress"].get("step_seconds", 0))
    cluster.muster("cancel", job, "--grace", "0s")
    return found, highest, step_ms


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--even-steps", type=int, default=5000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=192, help="samples per rank")
    parser.add_argument("--slowdown", type=float, default=1.2)
    parser.add_argument("--load", choices=["none", "steady", "bursts"], default="bursts")
    parser.add_argument("--heartbeat-interval", default="1s")
    parser.add_argument("--output", help="write PREFIX.json and PREFIX.md")
    options = parser.parse_args()
    results, table = {}, []
    failed = False
    with Cluster(nodes=options.ranks, coordinator_flags=[f"--heartbeat-interval={options.heartbeat_interval}"]) as cluster:
        if options.rounds > 0:
            rows, step_ms = named(cluster, options)
            good = sum(row["good"] for row in rows)
            failed |= good < len(rows)
            steps = [row["steps"] for row in rows]
            results["named"] = {"rounds": rows, "step_ms": step_ms}
            table.append([f"slowed by {options.slowdown}", f"{good} of {len(rows)} named within {LIMIT} steps",
                          f"{statistics.median(steps):.0f} steps, at most {max(steps)}", f"{step_ms:.1f} ms"])
        if options.even_steps > 0:
            found, highest, step_ms = even(cluster, options)
            failed |= bool(found)
            results["even"] = {"events": found, "highest_slowdown": highest, "step_ms": step_ms}
            for event in found:
                print(f"named without reason: {event['message']}", flush=True)
            table.append([f"even, load {options.load}", f"{len(found)} events in {options.even_steps} steps",
                          f"highest slowdown {highest:.2f}", f"{step_ms:.1f} ms"])
    text = markdown_table(["case", "result", "detail", "step"], table)
    print(text)
    if options.output:
        pathlib.Path(options.output + ".json").write_text(json.dumps(results, indent=2))
        pathlib.Path(options.output + ".md").write_text(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
