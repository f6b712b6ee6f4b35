"""Event files, read with TensorBoard's own reader."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

from tests.support.cluster import ROOT, binary, training_spec

PYTHON = ROOT / ".venv-tests/bin/python"
# Prints {tag: [[step, value], …]} of a directory.
READER = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0}).Reload()
print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
"""
# Prints the records before the scalars, and the number of records.
RECORDS = """
import sys
from tensorboard.compat.tensorflow_stub import pywrap_tensorflow
from tensorboard.compat.proto.event_pb2 import Event
reader = pywrap_tensorflow.PyRecordReader_New(sys.argv[1])
events = []
while True:
    try:
        reader.GetNext()
    except Exception as error:
        assert type(error).__name__ == "OutOfRangeError", error
        break
    events.append(Event.FromString(reader.record()))
print(events[0].file_version, events[1].session_log.status, len(events))
"""


def run_python(script, *arguments):
    assert PYTHON.exists(), "TensorBoard is not installed; run tests/support/setup_venv.sh"
    result = subprocess.run([PYTHON, "-c", script, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def read_scalars(directory):
    return json.loads(run_python(READER, directory))


class TensorBoardTest(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="muster-test."))
        self.addCleanup(shutil.rmtree, self.directory)

    def write(self, first, last):
        """Starts a writer and waits until it has written these steps."""
        process = subprocess.Popen([binary("trainer/tensorboard/tensorboard_writer"), self.directory, str(first), str(last)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.assertEqual(process.stdout.readline(), "written\n")
        return process

    def files(self):
        return sorted(self.directory.iterdir())

    def test_viewer_reads_file_while_writer_runs(self):
        writer = self.write(1, 5)
        scalars = read_scalars(self.directory)
        self.assertEqual(set(scalars), {"train/loss", "test/accuracy"})
        self.assertEqual([step for step, _ in scalars["train/loss"]], [1, 2, 3, 4, 5])
        for step, value in scalars["train/loss"]:
            self.assertAlmostEqual(value, 1 / step + 0.001, places=6)
        writer.communicate()
        self.assertEqual(writer.returncode, 0)
        self.assertEqual(run_python(RECORDS, self.files()[0]), "brain.Event:2 1 7\n")

    def test_killed_writer_leaves_readable_file(self):
        writer = self.write(1, 5)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        self.assertEqual(len(read_scalars(self.directory)["train/loss"]), 5)
        # Killed during a write: the truncated last record is ignored.
        data = self.files()[0].read_bytes()
        self.files()[0].write_bytes(data[:-7])
        self.assertEqual([step for step, _ in read_scalars(self.directory)["train/loss"]], [1, 2, 3, 4])

    def test_restart_overrides_repeated_steps(self):
        self.write(1, 10).communicate()
        self.write(7, 8).communicate()  # from a checkpoint of step 6
        losses = read_scalars(self.directory)["train/loss"]
        self.assertEqual([step for step, _ in losses], [1, 2, 3, 4, 5, 6, 7, 8])
        self.assertAlmostEqual(losses[5][1], 1 / 6 + 0.001, places=6)
        self.assertAlmostEqual(losses[6][1], 1 / 7 + 0.002, places=6)


class TrainingTest(unittest.TestCase):
    def test_training_writes_events(self):
        directory = pathlib.Path(tempfile.mkdtemp(prefix="muster-test."))
        self.addCleanup(shutil.rmtree, directory)
        spec = directory / "spec.json"
        spec.write_text(json.dumps(training_spec("tensorboard", max_steps=25, tensorboard={
            "dir": str(directory / "events" / "{node}"), "every_steps": 10})))
        result = subprocess.run([binary("cli/muster"), "local", spec, "-o", "json"], capture_output=True, text=True,
                                env=dict(os.environ, TMPDIR=str(directory)), check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        summary = json.loads(result.stdout)["summary"]
        node, = (directory / "events").iterdir()
        scalars = read_scalars(node)
        self.assertEqual({tag for tag in scalars}, {
            "train/loss", "train/accuracy", "train/learning_rate", "train/images_per_second", "train/stall_seconds",
            "test/accuracy", "test/loss"})
        self.assertEqual([step for step, _ in scalars["train/loss"]], [10, 20, 25])
        self.assertAlmostEqual(scalars["train/loss"][-1][1], summary["final_loss"], places=5)
        self.assertEqual([step for step, _ in scalars["test/accuracy"]], [25])
        self.assertAlmostEqual(scalars["test/accuracy"][-1][1], summary["test_accuracy"], places=5)
        self.assertAlmostEqual(scalars["test/loss"][-1][1], summary["test_loss"], places=5)


if __name__ == "__main__":
    unittest.main()
