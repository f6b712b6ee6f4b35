"""Measures the restart of a loaded coordinator: all slots busy, and a long queue of many distinct requests.

    bazel build //tests/bench:simulated_cluster //coordinator:muster-coordinator //cli:muster
    PYTHONPATH=. /usr/bin/python3 -B tests/bench/restart_bench.py [--nodes=1000] [--jobs=10000] [--rounds=5]

A real coordinator with SQLite; the nodes are simulated, on the same machine, and report the ranks of a job on each as
running. The coordinator is killed and started again. Prints a table in Markdown: medians, and the worst of the rounds.
"""

import argparse
import re
import statistics
import threading
import time
import urllib.error
import urllib.request

from tests.bench.status_page_bench import cpu_seconds, simulated_nodes
from tests.support.cluster import Cluster, wait_until

SLOTS = 8
CONNECTIONS = 250  # the coordinator accepts no more at once from one address that has not authenticated
REQUESTS = 100
STARTS = 200  # jobs that start in one turn; each is placed by a look at all nodes


def metric(cluster, name):
    """The sum of the samples whose name and labels match."""
    with urllib.request.urlopen(f"http://{cluster.http}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(name, line))


def running(cluster):
    return metric(cluster, r'muster_jobs\{.*state="running"')


def submit(cluster, name, nodes, ranks, count):
    cluster.submit({"name": name, "command": ["true"], "resources": {"nodes": nodes, "ranks_per_node": ranks},
                    "array": {"count": count}})


class Probe:
    """Polls /readyz, and keeps the longest time without an answer once there was one."""

    def __init__(self, cluster):
        self.longest = 0.0
        self._url, self._open = f"http://{cluster.http}/readyz", True
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        last = None
        while self._open:
            try:
                with urllib.request.urlopen(self._url, timeout=60) as answer:
                    answer.read()
                now = time.monotonic()
                self.longest = max(self.longest, now - (last or now))
                last = now
            except (OSError, urllib.error.HTTPError):
                pass
            time.sleep(0.02)

    def close(self):
        self._open = False
        self._thread.join()


def restart(cluster, simulated, nodes, job):
    """Seconds by name. Cancels the job."""
    print("reconnect", file=simulated.stdin, flush=True)
    simulated.stdout.readline()
    cluster.coordinator.kill()
    start = time.monotonic()
    probe = Probe(cluster)
    cluster.start_coordinator()
    listening = time.monotonic() - start
    assert simulated.stdout.readline().strip() == "connected"
    ready = time.monotonic() - start
    used = cpu_seconds(cluster.coordinator.process.pid)
    # A slot that becomes free is given to the next job.
    cluster.muster("cancel", job, "--grace", "0s")
    wait_until(lambda: cluster.get(job)["state"] == "CANCELLED" and running(cluster) >= nodes, 120, "a start")
    decided = time.monotonic() - start
    time.sleep(3)  # heartbeats after the restart
    print("heartbeats", file=simulated.stdin, flush=True)
    acknowledged = float(simulated.stdout.readline())
    probe.close()
    assert metric(cluster, r'muster_nodes\{.*state="ready"') == nodes, "a node was lost"
    return {"listening": listening, "every node READY": ready, "a freed slot is in use again": decided,
            "coordinator's CPU time until every node is READY": used,
            "longest wait for the acknowledgement of a heartbeat": acknowledged,
            "longest time without /readyz": probe.longest}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    connections = f"--connections={min(options.nodes, CONNECTIONS)}"
    with Cluster(nodes=0) as cluster, simulated_nodes(cluster, options.nodes, connections) as simulated:
        for first in range(0, options.nodes, STARTS):
            submit(cluster, f"busy-{first // STARTS}", 1, SLOTS, min(STARTS, options.nodes - first))
        wait_until(lambda: running(cluster) == options.nodes, 300, "running jobs")
        for request in range(REQUESTS):
            submit(cluster, f"waits-{request}", 1 + request // SLOTS, 1 + request % SLOTS, options.jobs // REQUESTS)
        rounds = [restart(cluster, simulated, options.nodes, f"busy-{i}-0") for i in range(options.rounds)]
    print("| from the kill on | median | worst |\n|---|---|---|")
    for name in rounds[0]:
        values = [one[name] for one in rounds]
        print(f"| {name} | {statistics.median(values):.2f} s | {max(values):.2f} s |")


if __name__ == "__main__":
    main()
