"""Compares the tables of environment variables with the variables that the sources read.

docs/reference/environment.md is written from these tables, and //docs/reference:pages_test checks that it is up to date.
"""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLES = ("common/process/environment_variables.cc", "worker/agent/generation/environment.h")
FOLDERS = ("cli", "collectives", "common", "coordinator", "deploy", "kernels", "process_group", "spec", "trainer", "worker")
SCRIPTS = ("deploy/*.sh", "bazel/*.bzl", "tests/run.sh")

# std::getenv, the helpers around it, and loops over names.
READ = re.compile(r'\b(?:getenv|Environment|Variable|NumberVariable<\w+>|Number)\(\s*"([A-Za-z]\w*)"')
LOOP = re.compile(r'\bfor \(const char\* const name : \{([^}]*)\}')
READ_BY_SCRIPT = re.compile(r'\$\{((?:MUSTER|CUDA)_\w+):?[-?]|environ\.get\("(\w+)"|\benviron = \["(\w+)"\]')
ENTRY = re.compile(r'^    \{"([\w*]+)",', re.MULTILINE)

# Read by libraries, not by Muster's sources.
READ_ELSEWHERE = {"GLOG_v"}


def is_test(path):
    return any(word in part for part in path.parts for word in ("test", "fake", "_bench", "bench", "fixture"))


def variables_in_sources(root):
    """Returns the names that programs read, each with a file that reads it."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            relative = path.relative_to(root)
            if path.suffix not in (".cc", ".h") or is_test(relative):
                continue
            text = path.read_text(encoding="utf-8")
            names = READ.findall(text)
            for names_of_loop in LOOP.findall(text):
                names += re.findall(r'"(\w+)"', names_of_loop)
            for name in names:
                found.setdefault(name, str(relative))
    return found


def variables_in_scripts(root):
    found = {}
    for pattern in SCRIPTS:
        for path in sorted(root.glob(pattern)):
            for groups in READ_BY_SCRIPT.findall(path.read_text(encoding="utf-8")):
                for name in filter(None, groups):
                    found.setdefault(name, str(path.relative_to(root)))
    return found


class EnvironmentTest(unittest.TestCase):
    def setUp(self):
        self.read = {**variables_in_scripts(ROOT), **variables_in_sources(ROOT)}
        texts = [(ROOT / table).read_text(encoding="utf-8") for table in TABLES]
        self.program_names = set(ENTRY.findall(texts[0]))
        self.names = {name for text in texts for name in ENTRY.findall(text)}

    def test_all_variables_are_documented(self):
        missing = {name: path for name, path in self.read.items() if name not in self.names}
        self.assertEqual(missing, {}, f"add these variables to {TABLES[0]}")

    def test_all_documented_variables_are_read(self):
        self.assertEqual(self.program_names - set(self.read) - READ_ELSEWHERE, set(),
                         f"no source reads these variables of {TABLES[0]}")

    def test_recognizes_reads(self):
        """The patterns find what they are meant to find: without them the other tests would pass."""
        self.assertLessEqual({"MUSTER_TOKEN", "XDG_CACHE_HOME", "RANK", "WORLD_SIZE", "PMI_RANK", "MUSTER_GENERATION",
                              "MUSTER_CUDA", "MUSTER_PREVIOUS", "CUDA_HOME"}, set(self.read))


if __name__ == "__main__":
    unittest.main()
