"""Runs the commands of README.md and the tutorials as a user would, and compares their output with the pages."""

import pathlib
import time
import unittest

from tests.docs.page import steps
from tests.docs.sandbox import Failed, Sandbox, Session
from tests.docs.transcript import difference
from tests.support.daemon import ROOT
from tests.support.namespaces import Unavailable

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/tutorials").glob("*.md"))]
# Exactly these commands are not run, and why.
NOT_RUN = {
    "deploy/quickstart.sh": "builds, and trains for long; tests/e2e/quickstart_test.py runs it",
    "tests/run.sh": "runs all tests, this one included",
    "deploy/install_dependencies.sh": "installs packages",
    "bazel build //...": "the programs are built already",
}
PAGE_TIMEOUT_SECONDS = 150
# Daemons in the background print their addresses when they are ready.
OUTPUT_TIMEOUT_SECONDS = 15


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

    def run_page(self, page):
        todo = [step for step in steps(page.read_text()) if is_run(step)]
        if not todo:
            return
        problems = []
        with new_sandbox() as sandbox:
            with Session(sandbox, PAGE_TIMEOUT_SECONDS) as session:
                for step in todo:
                    try:
                        problem = run_step(session, step)
                    except Failed as error:
                        problems.append(f"{page}:{step.line}: {error}")
                        break
                    if problem:
                        problems.append(f"{page}:{step.line}: {problem}")
            if not problems and (left := sandbox.leftovers()):
                problems.append(f"{page} leaves processes or files behind: {left}")
        self.assertEqual(problems, [], "\n\n".join(problems))


def new_sandbox():
    try:
        return Sandbox()
    except Unavailable as reason:
        raise unittest.SkipTest(f"cannot create namespaces: {reason}")


def run_step(session, step):
    """Empty, or how the real output differs from the page's."""
    started = time.monotonic()
    output = session.run(step.commands)
    problem = difference(step.output, output()) if step.output is not None else ""
    deadline = time.monotonic() + OUTPUT_TIMEOUT_SECONDS
    while problem and "&\n" in step.commands and time.monotonic() < deadline:
        time.sleep(0.05)
        problem = difference(step.output, output())
    print(f"line {step.line}: {time.monotonic() - started:.1f} s\n{output()}", flush=True)
    return problem


for _page in PAGES:
    setattr(PagesTest, f"test_{_page.stem.lower()}", lambda self, page=_page: self.run_page(page))


class SandboxTest(unittest.TestCase):
    def test_blocks_share_one_shell(self):
        with new_sandbox() as sandbox, Session(sandbox, 10) as session:
            session.run("cd deploy\nvalue=1\n")
            output = session.run("echo $value; ls quickstart.sh; echo error >&2\n")
            self.assertEqual(output(), "1\nquickstart.sh\nerror\n")

    def test_reports_failed_command(self):
        with new_sandbox() as sandbox, Session(sandbox, 10) as session:
            with self.assertRaisesRegex(Failed, "a command failed; output:\nbefore\n$"):
                session.run("echo before\nfalse\necho after\n")

    def test_reports_time_out(self):
        with new_sandbox() as sandbox, Session(sandbox, 0.5) as session:
            with self.assertRaisesRegex(Failed, "did not end in time; output:\nbefore\n$"):
                session.run("echo before\nsleep 600\n")

    def test_reports_leftovers(self):
        with new_sandbox() as sandbox:
            with Session(sandbox, 10) as session:
                session.run("sleep 600 &\ntouch $TMPDIR/file\n")
            self.assertEqual(sandbox.leftovers(timeout=0.2), ["sleep 600", str(sandbox.tmp / "file")])
            pid = next(iter(sandbox.processes()))
        self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())


if __name__ == "__main__":
    unittest.main()
