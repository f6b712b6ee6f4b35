"""Monitoring: a real Prometheus with service discovery by /sd, promtool, and the HTTP and gRPC health endpoints."""

import json
import shutil
import socket
import subprocess
import unittest
import urllib.error
import urllib.request

from tests.support.cluster import Cluster, training_spec, wait_until


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class ObservabilityTest(unittest.TestCase):
    def test_endpoints_and_promtool(self):
        with Cluster(nodes=2) as cluster:
            cluster.run(training_spec("watched", max_steps=20, resources={"nodes": 2, "ranks_per_node": 1}))
            addresses = [cluster.http] + [w.addresses["http"] for w in cluster.workers.values()]
            for address in addresses:
                self.assertIn("ok", fetch(f"http://{address}/livez").lower())
                self.assertIn("ok", fetch(f"http://{address}/readyz?verbose").lower())
                self.assertIn("0.", fetch(f"http://{address}/version"))
                metrics = fetch(f"http://{address}/metrics")
                self.assertIn("muster_build_info", metrics)
                if shutil.which("promtool"):
                    check = subprocess.run(["promtool", "check", "metrics"], input=metrics, text=True,
                                           capture_output=True, check=False)
                    self.assertEqual((check.returncode, check.stdout + check.stderr), (0, ""), address)
            # A scrape reads a snapshot that is at most a fraction of a second old.
            expected = {"muster_jobs_submitted_total 1",
                        'muster_jobs_finished_total{state="succeeded",reason="Completed"} 1'}
            wait_until(lambda: expected <= set(fetch(f"http://{cluster.http}/metrics").splitlines()), 5,
                       f"{expected} among the metrics")
            self.assertIn("<html", fetch(f"http://{cluster.http}/").lower())
            with self.assertRaises(urllib.error.HTTPError) as missing:
                fetch(f"http://{cluster.http}/nothing-here")
            self.assertEqual(missing.exception.code, 404)

    def test_service_discovery_is_empty_without_workers(self):
        with Cluster(nodes=0) as cluster:
            self.assertEqual(json.loads(fetch(f"http://{cluster.http}/sd")), [])

    @unittest.skipUnless(shutil.which("prometheus"), "prometheus is not installed")
    def test_prometheus_discovers_workers(self):
        with Cluster(nodes=2) as cluster:
            port = free_port()
            config = cluster.directory / "prometheus.yml"
            config.write_text(f"""
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: muster
    http_sd_configs:
      - url: http://{cluster.http}/sd
        refresh_interval: 1s
""")
            with open(cluster.directory / "prometheus.log", "wb") as log:
                prometheus = subprocess.Popen(
                    ["prometheus", f"--config.file={config}", f"--web.listen-address=127.0.0.1:{port}",
                     f"--storage.tsdb.path={cluster.directory / 'tsdb'}"], stdout=log, stderr=log)
            try:
                def both_up():
                    try:
                        answer = json.loads(fetch(f"http://127.0.0.1:{port}/api/v1/query?query=up"))
                    except (urllib.error.URLError, ConnectionError):
                        return None
                    up = [r for r in answer["data"]["result"] if r["value"][1] == "1"]
                    return len(up) == 2 and up
                targets = wait_until(both_up, 30, "prometheus to see two workers up")
                self.assertEqual({t["metric"]["instance"] for t in targets},
                                 {w.addresses["http"] for w in cluster.workers.values()})
            finally:
                prometheus.terminate()
                prometheus.wait(20)
