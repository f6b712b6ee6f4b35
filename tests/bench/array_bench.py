"""Measures how long the submission of a large array delays the calls of others.

    bazel build //coordinator:muster-coordinator //cli:muster
    PYTHONPATH=. /usr/bin/python3 -B tests/bench/array_bench.py [--tasks=10000]

A real coordinator with SQLite, on a free machine, and no workers. While one client submits the array, another one asks for a
job that does not exist, again and again. Prints a table in Markdown: medians of five arrays, each on a new coordinator.
"""

import argparse
import statistics
import threading
import time

from tests.support.cluster import Cluster

KINDS = {
    "tasks of `count`, which share a spec of 10 KB": ("count", 10_000),
    "a matrix, specs of 100 bytes": ("matrix", 10),
    "a matrix, specs of 3 KB": ("matrix", 3_000),
    "a matrix, specs of 5 KB": ("matrix", 5_000),
}


class Caller:
    """Asks for a job that does not exist until it is closed, and keeps the longest time that a call took."""

    def __init__(self, cluster):
        self.longest = 0.0
        self._cluster = cluster
        self._open = True
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while self._open:
            start = time.monotonic()
            self._cluster.muster("get", "no-such-job", check=False)
            self.longest = max(self.longest, time.monotonic() - start)

    def close(self):
        self._open = False
        self._thread.join()


def measure(kind, size, tasks):
    """Seconds of the submission, and of the longest other call."""
    array = {"count": tasks} if kind == "count" else {"matrix": {"env.TASK": list(range(tasks))}}
    spec = {"name": "array", "command": ["echo", "x" * size], "array": array}
    with Cluster(nodes=0) as cluster:
        path = cluster.write_spec(spec)
        caller = Caller(cluster)
        start = time.monotonic()
        cluster.muster("submit", str(path))
        took = time.monotonic() - start
        caller.close()
    return took, caller.longest


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=10_000)
    args = parser.parse_args()
    print("| array | submission | longest other call |\n|---|---|---|")
    for name, (kind, size) in KINDS.items():
        took, longest = zip(*(measure(kind, size, args.tasks) for _ in range(5)))
        print(f"| {name} | {statistics.median(took):.2f} s | {statistics.median(longest):.2f} s |", flush=True)


if __name__ == "__main__":
    main()
