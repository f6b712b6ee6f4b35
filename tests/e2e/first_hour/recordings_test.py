"""The first hour of an engineer who knows torchrun, Slurm and kubectl, with exactly what they see.

Each recording beside this test runs in a shell and a home folder of its own: on a terminal, whose screen must be that of
the recording, through a pipe, or both, where the output is the same.
"""

import pathlib
import unittest

from tests.support.recording import steps
from tests.support.walkthrough import walk

FOLDER = pathlib.Path(__file__).parent
TIMEOUT_SECONDS = 120
RECORDINGS = {  # with the widths of the terminals; None is a pipe
    "alone": (80, None),
    "cluster": (80, None),
    "terminal": (80,),
    "narrow": (60,),
    "pipe": (None,),
}


class RecordingsTest(unittest.TestCase):
    def test_every_recording_is_run(self):
        self.assertEqual({path.stem for path in FOLDER.glob("*.transcript")}, set(RECORDINGS))

    def check(self, name, columns):
        path = FOLDER / f"{name}.transcript"
        problems = walk(path, steps(path.read_text()), TIMEOUT_SECONDS, columns)
        self.assertEqual(problems, "", problems)


for _name, _widths in RECORDINGS.items():
    for _columns in _widths:
        setattr(RecordingsTest, f"test_{_name}_{f'on_{_columns}_columns' if _columns else 'through_a_pipe'}",
                lambda self, name=_name, columns=_columns: self.check(name, columns))


if __name__ == "__main__":
    unittest.main()
