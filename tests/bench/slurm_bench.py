#!/usr/bin/env python3
"""Jobs per second from submission to end, and the time of one submission, beside Slurm on the same machine.

    bazel build //cli:muster //coordinator:muster-coordinator //worker:muster-worker //worker:muster-shim
    apt-get install slurm-wlm
    tests/bench/slurm_bench.py [--jobs 1000] [--nodes 4] [--slots 8] [--rounds 3]

Both systems run on loopback with the same number of nodes and slots, one after the other in every round. A job is
/bin/true on one slot, without output. Jobs are submitted by one process of the command line each (sbatch, muster
submit), four at a time, and then once more as the tasks of one array. `submit` is the median time of one such process
while nothing else runs; `jobs/s` and `tasks/s` the number of jobs divided by the time from the first submission to the end
of the last job. Slurm's settings are in tests/support/slurm.py: those of its guide to high throughput that apply here.
"""

import argparse
import concurrent.futures
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.cluster import Cluster  # noqa: E402
from tests.support.daemon import wait_until  # noqa: E402
from tests.support.slurm import SlurmCluster, missing_programs  # noqa: E402

SUBMITTERS = 4
ALONE = 20


class Slurm:
    def __init__(self, nodes, slots):
        self.cluster = SlurmCluster(nodes, slots)
        self.submit = ["sbatch", "-Q", "-n", "1", "-o", "/dev/null", "--wrap", "exec /bin/true"]
        self.array_option = lambda tasks: [f"--array=0-{tasks - 1}"]

    def __enter__(self):
        self.cluster.__enter__()
        self.env = self.cluster.env()
        return self

    def __exit__(self, *error):
        return self.cluster.__exit__(*error)

    def unfinished(self):
        return len(self.cluster.run("squeue", "-h", "-t", "PENDING,CONFIGURING,RUNNING,COMPLETING").splitlines())


class Muster:
    def __init__(self, nodes, slots):
        self.cluster = Cluster(nodes=nodes, slots=slots)

    def __enter__(self):
        self.cluster.__enter__()
        self.env = self.cluster.client_env()
        self.submit = self.cluster.command("submit", "-o", "name", "--", "/bin/true")
        self.array_option = lambda tasks: [f"--array={tasks}"]
        return self

    def __exit__(self, *error):
        return self.cluster.__exit__(*error)

    def unfinished(self):
        return len(json.loads(self.cluster.muster("list", "-o", "json").stdout))


def run_once(system, *options):
    """`options` come before the job's program."""
    start = time.monotonic()
    subprocess.run([*system.submit[:2], *options, *system.submit[2:]], env=system.env, check=True,
                   stdout=subprocess.DEVNULL)
    return time.monotonic() - start


def measure(make, args):
    with make(args.nodes, args.slots) as system:
        alone = statistics.median(run_once(system) for _ in range(ALONE))
        wait_until(lambda: system.unfinished() == 0, 120, "the first jobs to end")
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(SUBMITTERS) as pool:
            list(pool.map(lambda _: run_once(system), range(args.jobs)))
        submitted = time.monotonic() - start
        wait_until(lambda: system.unfinished() == 0, 1200, "all jobs to end")
        finished = time.monotonic() - start
        start = time.monotonic()
        run_once(system, *system.array_option(args.jobs))
        wait_until(lambda: system.unfinished() == 0, 1200, "all tasks to end")
        array = time.monotonic() - start
    return {"submit_seconds": alone, "all_submitted_seconds": submitted, "jobs_per_second": args.jobs / finished,
            "tasks_per_second": args.jobs / array}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if missing_programs():
        sys.exit(f"missing {', '.join(missing_programs())}: apt-get install slurm-wlm")
    results = {"slurm": [], "muster": []}
    for _ in range(args.rounds):
        for name, make in (("slurm", Slurm), ("muster", Muster)):
            results[name].append(measure(make, args))
            print(name, json.dumps(results[name][-1]), flush=True)
    medians = {name: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
               for name, rows in results.items()}
    for name, row in medians.items():
        print(f"{name:8} submit {row['submit_seconds'] * 1000:6.1f} ms   {row['jobs_per_second']:7.1f} jobs/s   "
              f"{row['tasks_per_second']:7.1f} tasks/s")
    print(f"jobs/s, Muster / Slurm: {medians['muster']['jobs_per_second'] / medians['slurm']['jobs_per_second']:.2f} "
          "(target >= 3)")
    print(f"tasks/s, Muster / Slurm: {medians['muster']['tasks_per_second'] / medians['slurm']['tasks_per_second']:.2f}")
    print(f"submit, Muster / Slurm: {medians['muster']['submit_seconds'] / medians['slurm']['submit_seconds']:.2f} "
          "(target <= 1)")


if __name__ == "__main__":
    main()
