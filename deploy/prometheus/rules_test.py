"""The rules and the configuration that ship: promtool accepts them, and their alerts fire when they should, and say what
to do."""

import pathlib
import re
import shutil
import subprocess
import unittest

import yaml

from tests.support.daemon import ROOT

FOLDER = pathlib.Path(__file__).resolve().parent
PROMTOOL = shutil.which("promtool")
# Words of PromQL that look like names of metrics.
WORDS = {"absent", "and", "by", "histogram_quantile", "increase", "instance", "offset", "on", "or", "rate", "sum",
         "unless"}


def load(name):
    return yaml.safe_load((FOLDER / name).read_text())


def rules(name):
    return [rule for group in load(name)["groups"] for rule in group["rules"]]


def anchors(page):
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def metrics_in(expression):
    without_labels = re.sub(r"\{[^}]*\}|\bby \([^)]*\)|\bon \([^)]*\)|\[\w+\]", "", expression)
    return set(re.findall(r"(?<![\w:])[a-z_][a-z0-9_:]*", without_labels)) - WORDS


def families():
    """The metrics of the reference, with the series of histograms."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", (ROOT / "docs/reference/metrics.md").read_text(), re.M)
    names = {"up"}
    for name, kind in rows:
        names |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"} if kind == "histogram" else {name}
    return names


class RulesTest(unittest.TestCase):
    def promtool(self, *args):
        result = subprocess.run([PROMTOOL, *args], cwd=FOLDER, capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    @unittest.skipUnless(PROMTOOL, "promtool is not installed")
    def test_promtool_accepts_configuration_and_rules(self):
        self.promtool("check", "config", "prometheus.yml")
        self.promtool("check", "rules", "--lint-fatal", "recording_rules.yml", "alert_rules.yml")

    @unittest.skipUnless(PROMTOOL, "promtool is not installed")
    def test_alerts_fire_when_they_should(self):
        self.promtool("test", "rules", "alert_rules_test.yml")

    def test_every_alert_is_tested_firing_and_on_a_healthy_cluster(self):
        alerts = {rule["alert"] for rule in rules("alert_rules.yml")}
        self.assertEqual(alerts, {"CoordinatorDown", "GpuXid", "JobHung", "LowGoodput", "NoCheckpoint", "NodeLost",
                                  "QueueStuck", "Straggler"})
        healthy, *others = load("alert_rules_test.yml")["tests"]
        self.assertEqual({case["alertname"] for case in healthy["alert_rule_test"] if not case["exp_alerts"]}, alerts)
        self.assertEqual({case["alertname"] for test in others for case in test["alert_rule_test"]
                          if case["exp_alerts"]}, alerts)

    def test_alerts_say_what_to_do(self):
        for rule in rules("alert_rules.yml"):
            with self.subTest(rule["alert"]):
                self.assertIn(rule["labels"]["severity"], ("critical", "warning"))
                self.assertEqual(set(rule["annotations"]), {"summary", "description", "runbook_url"})
                self.assertRegex(rule["annotations"]["description"], r"muster |journalctl ")
                page, anchor = rule["annotations"]["runbook_url"].split("#")
                self.assertIn(anchor, anchors(ROOT / page))

    def test_rules_use_metrics_of_the_reference(self):
        recorded = {rule["record"] for rule in rules("recording_rules.yml")}
        for rule in rules("recording_rules.yml") + rules("alert_rules.yml"):
            self.assertLessEqual(metrics_in(rule["expr"]), families() | recorded, rule["expr"])
            self.assertTrue(metrics_in(rule["expr"]), rule["expr"])

    def test_page_has_the_configuration(self):
        page = (ROOT / "docs/operate/monitoring.md").read_text()
        shown = yaml.safe_load(re.search(r"```yaml\n(.*?)```", page, re.S)[1])
        self.assertEqual(shown["scrape_configs"], load("prometheus.yml")["scrape_configs"])
        for rule in rules("alert_rules.yml"):
            self.assertIn(f"`{rule['alert']}`", page)


if __name__ == "__main__":
    unittest.main()
