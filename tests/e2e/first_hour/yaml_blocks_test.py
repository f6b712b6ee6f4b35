"""The YAML on README.md and the pages below docs is valid: complete specs as they are, fragments of specs within one."""

import json
import subprocess
import unittest

import yaml

from tests.support.daemon import ROOT, binary
from tests.support.page import blocks

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Blocks of other formats, by their first key.
OTHER_FORMATS = {"scrape_configs": "Prometheus' configuration", "experiment": "of muster experiment",
                 "ageing": "of --scheduler-config", "apiVersion": "of Kubernetes"}
# What a fragment lacks.
TRAIN = {
    "model": {"name": "small_cnn"},
    "dataset": {"name": "fashion_mnist", "path": "/data"},
    "epochs": 1,
    "global_batch": 256,
    "optimizer": {"learning_rate": 0.1},
    "precision": "O2",  # of O0 mixed_precision has no options
}


def yaml_blocks():
    """Pairs of a place, as README.md:70, and the block's text."""
    for page in PAGES:
        for block in blocks(page.read_text()):
            if block.language == "yaml":
                yield f"{page.relative_to(ROOT)}:{block.line}", block.text


def is_other_format(block):
    return next(iter(block)) in OTHER_FORMATS


def is_complete(block):
    return "command" in block or "model" in block.get("train", {})


def completed(fragment):
    """A spec that contains the fragment: of the job or of its `train` section."""
    job_fields = {"train", "resources", "env", "after"}
    top = fragment if set(fragment) <= job_fields else {"train": fragment}
    return {**top, "train": {**TRAIN, **top.get("train", {})}}


def validate(text):
    """Empty, or the errors."""
    result = subprocess.run([binary("cli/muster"), "spec", "validate", "-"], input=text, capture_output=True, text=True,
                            timeout=30)
    return "" if result.returncode == 0 else result.stderr


class YamlBlocksTest(unittest.TestCase):
    def test_complete_specs(self):
        found = [(place, text) for place, text in yaml_blocks() if not is_other_format(yaml.safe_load(text))
                 and is_complete(yaml.safe_load(text))]
        self.assertGreaterEqual(len(found), 2)
        self.assertTrue(any(place.startswith("README.md") for place, text in found))
        for place, text in found:
            with self.subTest(place):
                self.assertEqual(validate(text), "")

    def test_fragments(self):
        found = [(place, yaml.safe_load(text)) for place, text in yaml_blocks()]
        fragments = [(place, block) for place, block in found if not is_other_format(block) and not is_complete(block)]
        self.assertGreaterEqual(len(fragments), 10)
        for place, fragment in fragments:
            with self.subTest(place):
                self.assertEqual(validate(json.dumps(completed(fragment))), "")

    def test_errors_are_found(self):
        self.assertIn("unknown field 'comand'", validate("comand: [x]"))
        self.assertIn("unknown field 'nme'", validate(json.dumps(completed({"model": {"nme": "x"}}))))

    def test_other_formats_exist(self):
        keys = {next(iter(yaml.safe_load(text))) for place, text in yaml_blocks()}
        self.assertLessEqual(set(OTHER_FORMATS), keys)


if __name__ == "__main__":
    unittest.main()
