"""Runs one unittest module and writes its results as JUnit XML to the file that Bazel expects."""

import importlib.util
import os
import pathlib
import sys
import time
import traceback
import unittest
from xml.sax.saxutils import escape, quoteattr

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))


class RecordingResult(unittest.TextTestResult):
    """Records (name, seconds, kind, text) of every case."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cases = []
        self._started = 0.0

    def startTest(self, test):
        super().startTest(test)
        self._started = time.monotonic()

    def _record(self, test, kind, text=""):
        self.cases.append((test.id(), time.monotonic() - self._started, kind, text))

    def addSuccess(self, test):
        super().addSuccess(test)
        self._record(test, "passed")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._record(test, "failure", "".join(traceback.format_exception(*err)))

    def addError(self, test, err):
        super().addError(test, err)
        self._record(test, "error", "".join(traceback.format_exception(*err)))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._record(test, "skipped", reason)


def write_xml(path, suite, cases):
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"<testsuites><testsuite name={quoteattr(suite)}>\n")
        for name, seconds, kind, text in cases:
            out.write(f"<testcase name={quoteattr(name)} time=\"{seconds:.3f}\">")
            if kind != "passed":
                out.write(f"<{kind}>{escape(text)}</{kind}>")
            out.write("</testcase>\n")
        out.write("</testsuite></testsuites>\n")


def main():
    path = pathlib.Path(sys.argv[1])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    names = sys.argv[2:]
    loader = unittest.defaultTestLoader
    suite = loader.loadTestsFromNames(names, module) if names else loader.loadTestsFromModule(module)
    runner = unittest.TextTestRunner(verbosity=2, resultclass=RecordingResult)
    result = runner.run(suite)
    if "XML_OUTPUT_FILE" in os.environ:
        write_xml(os.environ["XML_OUTPUT_FILE"], path.stem, result.cases)
    return 0 if result.wasSuccessful() and result.cases else 1


if __name__ == "__main__":
    sys.exit(main())
