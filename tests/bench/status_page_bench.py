"""Measures the status page with 10,000 jobs and 1,000 nodes: first paint, weight, and what open pages cost the coordinator.

    bazel build //tests/bench:simulated_cluster //coordinator:muster-coordinator //cli:muster
    PYTHONPATH=. /usr/bin/python3 -B tests/bench/status_page_bench.py [--jobs=10000] [--nodes=1000]

A real coordinator with SQLite; the nodes are simulated and send real heartbeats. The jobs are the tasks of an array that no
node satisfies, so they stay in the queue. Pages are measured without other jobs, and then while a real worker runs the tasks
of a second array, each of half a second. Prints a table in Markdown.
"""

import argparse
import contextlib
import os
import pathlib
import subprocess
import threading
import time
import urllib.error
import urllib.request

from tests.support.browser import Browser
from tests.support.cluster import Cluster, binary, shell_spec, wait_until

SECONDS = 10
TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def resident_mib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


@contextlib.contextmanager
def simulated_nodes(cluster, nodes, *flags):
    """The process of connected nodes with 8 slots each; see simulated_cluster.cc."""
    simulated = subprocess.Popen(
        [binary("tests/bench/simulated_cluster"), f"--coordinator={cluster.address}", f"--nodes={nodes}", "--ranks-per-node=8",
         *flags], env=cluster.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert simulated.stdout.readline().strip() == "connected"
        yield simulated
    finally:
        simulated.stdin.close()
        simulated.wait(60)


class Page:
    """A client that reads the stream of an overview."""

    def __init__(self, cluster):
        self.bytes = 0
        self._stream = wait_until(lambda: self._open(cluster), 10, "a free stream")
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    @staticmethod
    def _open(cluster):
        """None while the coordinator has not noticed that earlier pages are closed."""
        token = (cluster.directory / "coordinator" / "token").read_text().strip()
        request = urllib.request.Request(f"http://{cluster.http}/api/overview?limit=100",
                                         headers={"Authorization": f"Bearer {token}"})
        try:
            return urllib.request.urlopen(request, timeout=30)
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            return None

    def _read(self):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            while data := self._stream.read1(1 << 16):
                self.bytes += len(data)

    def close(self):
        self._stream.fp.raw._sock.shutdown(2)
        self._thread.join()


def load_of(pid, seconds=SECONDS):
    """CPU time of the process as a share of one core."""
    before, start = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - start)


def latency_ms(url):
    times = []
    for _ in range(50):
        start = time.monotonic()
        with urllib.request.urlopen(url, timeout=10) as answer:
            answer.read()
        times.append(1000 * (time.monotonic() - start))
    return sorted(times)[len(times) // 2], max(times)


def first_paint(cluster):
    """Milliseconds until the first content, and until the rows and nodes are shown; and the bytes received until then."""
    with Browser(1280, 900) as browser:
        browser.evaluate("1")
        browser.open(cluster.muster("page", "-o", "name").stdout.strip())
        ready = browser.evaluate("""new Promise((resolve) => {
          const look = () => {
            const shown = document.querySelectorAll("tbody tr").length >= 100 && document.querySelectorAll(".tile").length >= 100;
            if (shown) resolve(performance.now()); else requestAnimationFrame(look);
          };
          look();
        })""")
        paint = browser.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        files = browser.evaluate("""[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
          .filter((one) => !one.name.includes('/api/')).reduce((sum, one) => sum + one.transferSize, 0)""")
        return paint, ready, files, browser.received_bytes


def open_pages(pid, cluster, label):
    """Rows of the table: what open pages cost the coordinator."""
    rows = [(f"CPU without pages{label}", f"{100 * (idle := load_of(pid)):.2f} % of a core")]
    for count in (1, 10, 36):
        pages = [Page(cluster) for _ in range(count)]
        time.sleep(3)
        received = sum(page.bytes for page in pages)
        load = load_of(pid)
        sent = (sum(page.bytes for page in pages) - received) / count / SECONDS
        rows.append((f"CPU with {count} open pages{label}, each beyond that without",
                     f"{100 * load:.2f} %, {100 * (load - idle) / count:.3f} % per page; {sent:.0f} bytes/s per page"))
        if count == 36:
            for path in ("livez", "metrics"):
                median, most = latency_ms(f"http://{cluster.http}/{path}")
                rows.append((f"/{path} with {count} open pages{label}", f"median {median:.1f} ms, most {most:.1f} ms"))
            rows.append((f"resident memory with {count} pages{label}", f"{resident_mib(pid):.0f} MiB"))
        for page in pages:
            page.close()
    return rows


def ended(http):
    text = urllib.request.urlopen(f"http://{http}/metrics").read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
               if line.startswith("muster_jobs_finished_total{") and 'state="succeeded"' in line)


def ended_per_second(http):
    before, start = ended(http), time.monotonic()
    time.sleep(SECONDS)
    return (ended(http) - before) / (time.monotonic() - start)


def start_changing_jobs(cluster):
    """Starts a worker that runs one short job after the other in each of its slots. Returns the array."""
    cluster.start_worker("real", slots=4, flags=["--labels=kind=real"])
    spec = shell_spec("changes", "sleep 0.5")
    spec["resources"]["select"] = {"kind": "real"}
    spec["array"] = {"count": 2000}
    array = cluster.submit(spec)
    wait_until(lambda: ended(cluster.http) > 20, 60, "jobs that have ended")
    return array


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10000)
    parser.add_argument("--nodes", type=int, default=1000)
    options = parser.parse_args()
    with Cluster(nodes=0) as cluster, simulated_nodes(cluster, options.nodes):
        spec = shell_spec("waits", "true")
        spec["resources"]["select"] = {"kind": "none"}
        spec["array"] = {"count": options.jobs}
        cluster.submit(spec)
        pid, http = cluster.coordinator.process.pid, cluster.http
        wait_until(lambda: str(options.jobs).encode() in urllib.request.urlopen(f"http://{http}/metrics").read(), 60, "jobs")
        time.sleep(5)
        rows = [("resident memory without pages", f"{resident_mib(pid):.0f} MiB")]
        paints = [first_paint(cluster) for _ in range(5)]
        middle = sorted(paints)[2]
        rows += [("first contentful paint, median of 5", f"{middle[0]:.0f} ms"),
                 ("100 rows and all nodes shown", f"{sorted(p[1] for p in paints)[2]:.0f} ms"),
                 ("static files", f"{middle[2] / 1000:.0f} KB"),
                 ("static files and data until then", f"{middle[3] / 1000:.0f} KB"),
                 *open_pages(pid, cluster, "")]
        changing = start_changing_jobs(cluster)
        rows += open_pages(pid, cluster, ", jobs changing")
        rows.append(("jobs that ended per second", f"{ended_per_second(http):.1f}"))
        cluster.muster("cancel", changing, "--grace", "0s")
        print("\n".join(["| what | measured |", "|---|---|"] + [f"| {name} | {value} |" for name, value in rows]))


if __name__ == "__main__":
    main()
