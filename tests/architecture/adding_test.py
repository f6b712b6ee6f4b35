"""The pages on how to add things: their examples apply to the tree and change as few files as the pages promise."""

import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The most files that an example may change. The two pages that are generated for a verb are not part of its example.
MOST_FILES = {"cli_verb.md": 7, "metric.md": 3, "spec_field.md": 4}


class AddingTest(unittest.TestCase):
    def test_examples_apply(self):
        for page, most in MOST_FILES.items():
            with self.subTest(page):
                text = (ROOT / "docs" / "design" / page).read_text()
                patch = re.search(r"^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL).group(1)
                applied = subprocess.run(["git", "apply", "--check", "-C1", "-"], cwd=ROOT, input=patch, text=True,
                                         capture_output=True, check=False)
                self.assertEqual((applied.returncode, applied.stderr), (0, ""))
                self.assertLessEqual(patch.count("diff --git"), most)


if __name__ == "__main__":
    unittest.main()
