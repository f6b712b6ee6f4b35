"""The dashboards that ship: their JSON is what Grafana imports, and every expression returns data of a real cluster."""

import contextlib
import gzip
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import unittest
import urllib.error
import urllib.parse
import urllib.request

import yaml

from tests.support.cluster import Cluster, command_spec, fashion_mnist, shell_spec, training_spec, wait_until
from tests.support.fake_gpus import FakeGpus
from tests.support.small_test_set import shortened

FOLDER = pathlib.Path(__file__).resolve().parent
RULES = FOLDER.parent / "prometheus"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Ids of Grafana's units.
UNITS = {"Bps", "bytes", "celsius", "none", "ops", "percentunit", "reqps", "s", "watt"}
COLUMNS = 24


def dashboards():
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def panels(dashboard):
    """The panels that show data."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def overlap(a, b):
    return (a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"]
            and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"])


class SchemaTest(unittest.TestCase):
    def each(self):
        for name, dashboard in dashboards().items():
            with self.subTest(name):
                yield name, dashboard

    def test_dashboards_have_fixed_ids_and_link_to_each_other(self):
        self.assertEqual(set(dashboards()), {"cluster", "control-plane", "job", "node"})
        for name, dashboard in self.each():
            self.assertEqual(dashboard["uid"], f"muster-{name}")
            self.assertLessEqual(len(dashboard["uid"]), 40)
            self.assertNotIn("id", dashboard)  # an id of another Grafana would be taken for that of a dashboard there
            self.assertGreaterEqual(dashboard["schemaVersion"], 36)
            self.assertIn("muster", dashboard["tags"])
            self.assertEqual(dashboard["links"][0]["tags"], ["muster"])
        titles = [dashboard["title"] for dashboard in dashboards().values()]
        self.assertEqual(len(set(titles)), len(titles))

    def test_datasource_is_a_variable(self):
        for _, dashboard in self.each():
            first, *others = dashboard["templating"]["list"]
            self.assertEqual((first["name"], first["type"], first["query"]), ("datasource", "datasource", "prometheus"))
            parts = others + panels(dashboard) + [target for panel in panels(dashboard) for target in panel["targets"]]
            for part in parts:
                self.assertEqual(part["datasource"], DATASOURCE)

    def test_expressions_use_declared_variables(self):
        for _, dashboard in self.each():
            declared = {variable["name"] for variable in dashboard["templating"]["list"]} - {"datasource"}
            text = json.dumps([panel["targets"] for panel in panels(dashboard)]).replace("${datasource}", "")
            self.assertEqual(set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval", "__range"}, declared)

    def test_panels_have_units_and_legends(self):
        for _, dashboard in self.each():
            ids = [panel["id"] for panel in dashboard["panels"]]
            self.assertEqual(len(set(ids)), len(ids))
            for panel in panels(dashboard):
                self.assertIn(panel["type"], ("stat", "table", "timeseries"))
                self.assertTrue(panel["title"])
                self.assertIn(panel["fieldConfig"]["defaults"]["unit"], UNITS, panel["title"])
                references = [target["refId"] for target in panel["targets"]]
                self.assertEqual(len(set(references)), len(references))
                for target in panel["targets"]:
                    self.assertTrue(target["legendFormat"], panel["title"])

    def test_panels_do_not_overlap(self):
        for _, dashboard in self.each():
            for panel in dashboard["panels"]:
                self.assertLessEqual(panel["gridPos"]["x"] + panel["gridPos"]["w"], COLUMNS)
            for one, other in itertools.combinations(dashboard["panels"], 2):
                self.assertFalse(overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"]))


class Prometheus:
    """A Prometheus with the configuration that ships, but for addresses and intervals."""

    def __init__(self, cluster):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{s.getsockname()[1]}"
        config = yaml.safe_load((RULES / "prometheus.yml").read_text().replace("127.0.0.1:7071", cluster.http))
        config["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
        config["rule_files"] = [str(RULES / name) for name in config["rule_files"]]
        for scrape in config["scrape_configs"]:
            for discovery in scrape.get("http_sd_configs", []):
                discovery["refresh_interval"] = "1s"
        path = cluster.directory / "prometheus.yml"
        path.write_text(yaml.safe_dump(config))
        with open(cluster.directory / "prometheus.log", "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={path}", f"--web.listen-address={self.address}",
                 f"--storage.tsdb.path={cluster.directory / 'tsdb'}"], stdout=log, stderr=log)

    def get(self, path, **query):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.load(response)["data"]

    def ready(self):
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            return self.get("query", query="vector(1)")
        return None

    def values(self, expression):
        """The numbers that an expression returns now."""
        found = [float(series["value"][1]) for series in self.get("query", query=expression)["result"]]
        return [value for value in found if math.isfinite(value)]

    def label_values(self, query):
        """The values of a dashboard's variable, as Grafana computes them from label_values(SERIES, LABEL)."""
        series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
        return sorted({found["metric"][label] for found in self.get("query", query=series)["result"]})

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


def short_dataset(folder):
    """Writes Fashion-MNIST with 1,000 images per part to `folder`: its epochs, and with them its evaluations, are short."""
    folder.mkdir()
    for path in pathlib.Path(fashion_mnist()).glob("*-ubyte*"):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        (folder / path.stem).write_bytes(shortened(data, 1000))
    return str(folder)


def substitute(expression, values):
    for name, value in {"__rate_interval": "2m", "__range": "10m", **values}.items():
        expression = re.sub(rf"\$\{{?{name}\b\}}?", value, expression)
    return expression


@unittest.skipUnless(shutil.which("prometheus"), "prometheus is not installed")
class DataTest(unittest.TestCase):
    def setUp(self):
        self.cluster = self.enterContext(Cluster(coordinator_flags=[
            "--heartbeat-interval=250ms", "--lease=2s", "--job-lease=4s"]))
        self.gpus = FakeGpus(self.cluster.directory, 1)
        self.gpus.start_worker(self.cluster, "node-1")
        self.cluster.start_worker("node-2")
        self.cluster.start_worker("node-3")
        self.cluster.wait_for_nodes(3)
        self.prometheus = Prometheus(self.cluster)
        self.addCleanup(self.prometheus.stop)
        wait_until(self.prometheus.ready, 30, "prometheus")

    def lose_node_with_job(self):
        """Kills the worker and the ranks of a node on which a job runs."""
        # Its ranks, and with them its node, count as lost after this time.
        spec = command_spec("on-lost-node", "/bin/sleep", "600", restart={"max": 3}, failure_timeout="4s")
        spec["resources"]["exclude_nodes"] = ["node-1"]
        job = self.cluster.submit(spec)
        self.cluster.wait_for_state(job, "RUNNING")
        node = self.cluster.describe(job)["ranks"][0]["node"]
        self.cluster.workers[node].kill()
        for pid, _ in self.cluster.processes(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.prometheus.values(f'muster_node_up{{node="{node}"}} == 0'), 30, f"the loss of {node}")
        return node, job

    def train_with_killed_rank(self):
        job = self.cluster.submit(training_spec(
            "watched", global_batch=128, max_steps=1_000_000, evaluate_every_epochs=10, restart={"max": 3},
            dataset={"name": "fashion_mnist", "path": short_dataset(self.cluster.directory / "dataset")},
            resources={"nodes": 2, "ranks_per_node": 1, "device": "cpu"}))
        self.cluster.wait_for_step(job, 100)
        os.kill(self.cluster.rank_pids()[-1], signal.SIGKILL)
        wait_until(lambda: (j := self.cluster.get(job))["generation"] == 2 and j["state"] == "RUNNING", 60,
                   "the second generation")
        return job

    def test_every_expression_returns_data(self):
        finished = self.cluster.submit(shell_spec("finished", "true"))
        self.cluster.wait(finished)
        lost, _ = self.lose_node_with_job()
        # The job of the lost node runs on one of the two others: it makes room.
        for job in json.loads(self.cluster.muster("list", "-o", "json").stdout):
            self.cluster.muster("cancel", job["job_id"], "--grace", "0s")
            self.cluster.wait(job["job_id"], check=False)
        self.cluster.start_worker(lost)
        trained = self.train_with_killed_rank()
        for number in range(3):
            self.cluster.submit(command_spec(f"queued-{number}", "/bin/sleep", "600", nodes=3))
        self.gpus.xids.append((0, 13))
        self.gpus.save()

        choices = {"job": trained, "node": "node-1", "gpu": ".*"}
        for name, dashboard in dashboards().items():
            for variable in dashboard["templating"]["list"][1:]:
                values = self.prometheus.label_values(substitute(variable["definition"], choices))
                choice = choices[variable["name"]]
                self.assertTrue(choice in values or (choice == variable.get("allValue") and values), (name, values))

        missing = {(name, panel["title"], target["expr"]) for name, dashboard in dashboards().items()
                   for panel in panels(dashboard) for target in panel["targets"]}

        def all_have_data():
            for one in list(missing):
                if self.prometheus.values(substitute(one[2], choices)):
                    missing.discard(one)
            return not missing
        try:
            wait_until(all_have_data, 40, "data of all expressions")
        except AssertionError:
            self.fail("no data:\n" + "\n".join(map(str, sorted(missing))))
        self.cluster.muster("cancel", trained, "--grace", "0s")


if __name__ == "__main__":
    unittest.main()
