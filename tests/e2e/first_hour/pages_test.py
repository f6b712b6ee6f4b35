"""Runs the commands of README.md and the tutorials as a user would, and compares their output with the pages.

By default they run on a terminal: its final screen is what the pages show, without the lines of progress, which a
terminal redraws in one line and erases. README.md also runs through a pipe, as it shows; the others do among the long
tests, and recordings_test.py proves with shorter commands what differs there.
"""

import unittest

from tests.support.daemon import ROOT
from tests.support.page import Step, steps
from tests.support.walkthrough import walk

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/tutorials").glob("*.md"))]
# Exactly these commands are not run, and why.
NOT_RUN = {
    "deploy/quickstart.sh": "builds, and trains for long; tests/e2e/quickstart_test.py runs it",
    "tests/run.sh": "runs all tests, this one included",
    "deploy/install_dependencies.sh": "installs packages",
    "bazel/build.sh //...": "the programs are built already",
}
PAGE_TIMEOUT_SECONDS = 150


def is_run(step):
    """False for a block of NOT_RUN. Raises ValueError if a block mixes these commands with others."""
    commands = [line.strip() for line in step.commands.splitlines() if line.strip()]
    skipped = [command for command in commands if command in NOT_RUN]
    if skipped and skipped != commands:
        raise ValueError(f"line {step.line}: {skipped[0]} is not run by this test; put it into a block of its own")
    return not skipped


class PagesTest(unittest.TestCase):
    def test_commands_that_are_not_run_exist(self):
        found = {line.strip() for page in PAGES for step in steps(page.read_text()) if not is_run(step)
                 for line in step.commands.splitlines()}
        self.assertEqual(set(NOT_RUN), found - {""})


class TerminalTest(unittest.TestCase):
    columns = 80

    def run_page(self, page):
        todo = [step for step in steps(page.read_text()) if is_run(step)]
        self.assertTrue(todo, f"{page} has no command that this test runs")
        problems = walk(page, todo, PAGE_TIMEOUT_SECONDS, self.columns)
        self.assertEqual(problems, "", problems)


class PipeTest(TerminalTest):
    columns = None


class ScriptTest(unittest.TestCase):
    def test_cluster_as_one_script(self):
        page = ROOT / "docs/tutorials/cluster.md"
        commands = "".join(step.commands for step in steps(page.read_text()) if is_run(step))
        shown = "…\nnode node-2 has joined; …\n…\nsucceeded after 1 s\n…\ntest accuracy 0.8\n…\nexit status 77\n…\nok\n…\n"
        problems = walk(page, [Step(1, commands, shown)], PAGE_TIMEOUT_SECONDS)
        self.assertEqual(problems, "", problems)


for _page in PAGES:
    setattr(TerminalTest, f"test_{_page.stem.lower()}", lambda self, page=_page: self.run_page(page))


if __name__ == "__main__":
    unittest.main()
