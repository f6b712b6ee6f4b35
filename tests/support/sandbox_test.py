"""The shell in a sandbox, on a terminal and through a pipe."""

import pathlib
import unittest

from tests.support.sandbox import Failed, Session
from tests.support.walkthrough import new_sandbox


class PipeTest(unittest.TestCase):
    columns = None

    def test_blocks_share_one_shell(self):
        with new_sandbox() as sandbox, Session(sandbox, 10, self.columns) as session:
            session.run("cd deploy\nvalue=1\n")
            output = session.run("echo $value; ls quickstart.sh; echo error >&2\n")
            self.assertEqual(output, "1\nquickstart.sh\nerror\n")

    def test_reports_failed_command(self):
        with new_sandbox() as sandbox, Session(sandbox, 10, self.columns) as session:
            with self.assertRaisesRegex(Failed, "a command failed; output:\nbefore\n$"):
                session.run("echo before\nfalse\necho after\n")

    def test_reports_time_out(self):
        with new_sandbox() as sandbox, Session(sandbox, 0.5, self.columns) as session:
            with self.assertRaisesRegex(Failed, "did not end in time; output:\nbefore\n$"):
                session.run("echo before\nsleep 600\n")

    def test_reports_leftovers(self):
        with new_sandbox() as sandbox:
            with Session(sandbox, 10, self.columns) as session:
                session.run("sleep 600 &\ntouch $TMPDIR/file\n")
            self.assertEqual(sandbox.leftovers(timeout=0.2), ["sleep 600", str(sandbox.tmp / "file")])
            pid = next(iter(sandbox.processes()))
        self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())

    def test_streams(self):
        """They are terminals of the session's width, or not."""
        with new_sandbox() as sandbox, Session(sandbox, 10, self.columns) as session:
            streams = session.run("for fd in 0 1 2; do [ -t $fd ] && tput cols || echo none; done\n")
            self.assertEqual(streams, 3 * f"{self.columns or 'none'}\n")


class TerminalTest(PipeTest):
    columns = 60

    def test_interrupt_reaches_the_foreground_only(self):
        with new_sandbox() as sandbox, Session(sandbox, 10, self.columns) as session:
            session.run("sleep 600 &\n")
            session.start("sh -c 'trap \"exit 130\" INT; echo sleeping; sleep 600 & wait' || echo status $?\n")
            session.wait_for("sleeping")
            session.type("\x03")
            self.assertEqual(session.finish(), "sleeping\n^Cstatus 130\n")
            self.assertEqual(session.run("kill $!; wait $! || echo status $?\n").splitlines()[-1], "status 143")

    def test_every_state_of_a_line_is_seen(self):
        with new_sandbox() as sandbox, Session(sandbox, 10, self.columns) as session:
            session.start(r"printf '\r1 of 3\r2 of 3\r3 of 3\n'" + "\n")
            session.wait_for("1 of 3")
            session.wait_for("2 of 3")
            self.assertEqual(session.finish(), "3 of 3\n")
            session.start("echo; echo other\n")
            with self.assertRaisesRegex(Failed, "'1 of 3' was not shown; output:\n\nother\n"):
                session.wait_for("1 of 3")

    def test_wrapped_lines_are_joined(self):
        with new_sandbox() as sandbox, Session(sandbox, 10, self.columns) as session:
            self.assertEqual(session.run("printf '%0130d\\nx\\n' 7\n"), f"{'0' * 129}7\nx\n")


if __name__ == "__main__":
    unittest.main()
