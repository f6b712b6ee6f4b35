"""The wheel's Python module, without the programs."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import warnings

FOLDER = pathlib.Path(__file__).absolute().parent
sys.path.insert(0, str(FOLDER))

import muster  # noqa: E402


class Number:
    """Converts as a tensor of one element does."""

    def __int__(self):
        return 7

    def __float__(self):
        return 7.5


class ProgressTest(unittest.TestCase):
    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.path = pathlib.Path(folder, "progress")
        self.enterContext(unittest.mock.patch.dict(os.environ, MUSTER_PROGRESS=str(self.path)))

    def lines(self):
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def test_appends_a_line_per_report(self):
        muster.progress(step=1, loss=0.5, phase="training")
        muster.progress(step=Number(), loss=Number())
        self.assertEqual(self.lines(), [{"step": 1, "loss": 0.5, "phase": "training"}, {"step": 7, "loss": 7.5}])

    def test_losses_may_be_infinite(self):
        muster.progress(loss=float("inf"))
        self.assertEqual(self.path.read_text(), '{"loss": Infinity}\n')

    def test_warns_when_it_cannot_write(self):
        os.environ["MUSTER_PROGRESS"] = "/no/such/folder/progress"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            muster.progress(step=1)
        self.assertRegex(str(caught[0].message), "cannot report progress: .*/no/such/folder")

    def test_does_nothing_outside_of_muster(self):
        del os.environ["MUSTER_PROGRESS"]
        muster.progress(step=1, loss=object())


class CheckpointRequestTest(unittest.TestCase):
    def setUp(self):
        self.calls = []
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))

    def test_calls_every_function_in_order(self):
        with unittest.mock.patch.dict(os.environ, MUSTER_STOP_SIGNAL="SIGUSR1"):
            first = muster.on_checkpoint_request(lambda: self.calls.append("first"))
            muster.on_checkpoint_request(lambda: self.calls.append("second"))
        self.assertTrue(callable(first))
        signal.raise_signal(signal.SIGUSR1)
        self.assertEqual(self.calls, ["first", "second"])

    def test_leaves_signals_alone_outside_of_muster(self):
        code = "import muster, signal; muster.on_checkpoint_request(print); signal.raise_signal(signal.SIGTERM)"
        env = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        result = subprocess.run([sys.executable, "-B", "-c", code], cwd=FOLDER, env=env, check=False)
        self.assertEqual(result.returncode, -signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
