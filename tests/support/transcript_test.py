"""The parsers of pages and recordings, and the comparison of transcripts."""

import unittest

from tests.support import recording
from tests.support.page import Step, blocks, steps
from tests.support.transcript import difference

PAGE = """\
# Page

```sh
first
```

Text.

```sh
second
third
```
```
output
```

```yaml
name: x
```
"""


class PageTest(unittest.TestCase):
    def test_steps(self):
        self.assertEqual(steps(PAGE), [Step(3, "first\n"), Step(9, "second\nthird\n", "output\n")])

    def test_block_in_text_is_a_diagram(self):
        self.assertEqual(steps("```sh\na\n```\ntext\n```\n┌─┐\n```\n"), [Step(1, "a\n")])

    def test_refuses_other_languages(self):
        with self.assertRaisesRegex(ValueError, "line 1: block of language 'console'"):
            steps("```console\n$ a\n```\n")

    def test_refuses_open_block(self):
        with self.assertRaisesRegex(ValueError, "line 2: the block is not closed"):
            blocks("text\n```sh\na\n")


class RecordingTest(unittest.TestCase):
    def test_steps(self):
        recorded = ('# What it is for.\n$ muster ps\nout\n\nmore\n# Next.\n$ cat <<END\n> text\n> END\n'
                    '@ once "a b" type "^C"\n@ once "c" type "d⏎"\n@ once "e"\n')
        first, second = recording.steps(recorded)
        self.assertEqual(first, Step(2, '{ muster ps\n} || echo "exit status $?"\n', "out\n\nmore\n"))
        self.assertEqual(second, Step(7, '{ cat <<END\ntext\nEND\n} || echo "exit status $?"\n', "",
                                      [("a b", "\x03"), ("c", "d\n"), ("e", "")]))

    def test_refuses_unclear_lines(self):
        with self.assertRaisesRegex(ValueError, "line 1: output before the first command"):
            recording.steps("out\n")
        with self.assertRaisesRegex(ValueError, "line 2: expected @ once"):
            recording.steps("$ a\n@ type b\n")


class TranscriptTest(unittest.TestCase):
    def assert_same(self, shown, real):
        self.assertEqual(difference(shown, real), "")

    def assert_differs(self, shown, real):
        self.assertNotEqual(difference(shown, real), "")

    def test_words_must_match(self):
        self.assert_same("node-2 is schedulable\n", "node-2 is schedulable\n")
        self.assert_differs("node-2 is schedulable\n", "node-2 is cordoned\n")
        self.assert_differs("exit status 3\n", "exit status 4\n")
        self.assert_differs("a\n", "a\nb\n")
        self.assert_differs("a\nb\n", "a\n")
        self.assert_differs("a\nb\n", "b\na\n")

    def test_volatile_parts_are_ignored(self):
        self.assert_same("first-job-px73w\n", "first-job-0rt4z\n")
        self.assert_same("succeeded after 12.5 s\n", "succeeded after 1m2s\n")
        self.assert_same("listening http=127.0.0.1:40129 name=node-1\n", "listening http=127.0.0.1:5 name=node-1\n")
        self.assert_same("node-1  READY  1      1     127.0.0.1  0s ago\n", "node-1 READY 1 1 127.0.0.1 12s ago\n")
        self.assert_same("logs kept in /tmp/tmp.0N50wwVcga/run\n", "logs kept in /var/tmp/x/tmp.aaaaaaaaaa/run\n")
        self.assert_same("0  node-1  0  0  CONNECTED  30949  52  0s  -\n", "0 node-1 0 0 CONNECTED 7 100 1s -\n")
        self.assert_same("final loss 0.4293\n", "final loss 1.5\n")
        self.assert_same("I20261123 02:09:26.126256 31025 preflight.cc:127] network check passed\n",
                         "I20270101 00:00:00.000000     7 preflight.cc:9] network check passed\n")

    def test_stable_parts_are_compared(self):
        self.assert_differs("second-job-px73w\n", "first-job-0rt4z\n")
        self.assert_differs("grpc=127.0.0.1:7070\n", "grpc=127.0.0.1:7072\n")
        self.assert_differs("version 0.1.0\n", "version 0.1.1\n")
        self.assert_differs("Restarts: 1 of 3\n", "Restarts: 2 of 3\n")
        self.assert_differs("logs kept in /tmp/tmp.0N50wwVcga/run\n", "logs kept in /tmp/tmp.0N50wwVcga/other\n")

    def test_ellipsis(self):
        self.assert_same("a\n…\nd\n", "a\nb\nc\nd\n")
        self.assert_same("a\n…\nd\n", "a\nd\n")
        self.assert_same("loss …, peak memory 119 MiB\n", "loss 2, many words, peak memory 7 MiB\n")
        self.assert_differs("a\n…\nd\n", "a\nb\nc\n")
        self.assert_differs("a …\n", "b c\n")

    def test_progress_may_be_printed_more_or_less_often(self):
        shown = ("starting: generation 1\nloading-data\ntraining\n"
                 "step 23/100  epoch 0.10/2  loss 1.1818  accuracy 0.6953  2,437 images/s  8s left\nsucceeded\n")
        self.assert_same(shown, "succeeded\n")
        self.assert_same("succeeded\n", shown)
        self.assert_differs(shown, shown.replace("images/s", "samples/s"))

    def test_steps_of_a_command_may_be_printed_more_often(self):
        self.assert_same("running: generation 1\n3/3 steps^C\n", "1/3 steps\nrunning: generation 1\n2/3 steps\n3/3 steps^C\n")
        self.assert_differs("3/3 steps\n", "succeeded\n")

    def test_progress_is_erased_from_a_terminal(self):
        shown = "training\nstep 23/100  loss 1.1818  8s left\nProgress: training\nsucceeded\n"
        self.assertEqual(difference(shown, "succeeded\n", terminal=True), "")
        for line in ("training", "step 23/100  loss 1.1818  8s left"):
            self.assertNotEqual(difference(shown, f"{line}\nsucceeded\n", terminal=True), "")

    def test_background_jobs_of_a_terminal_are_ignored(self):
        done = "[1]   Done                    muster-worker\n[2]+  Done                    muster-coordinator\n"
        self.assertEqual(difference("a\n", f"a\n{done}", terminal=True), "")
        self.assertNotEqual(difference("a\n", f"a\n{done}"), "")

    def test_ranks_are_interleaved_in_any_order(self):
        self.assert_same("x\n0| a\n0| b\n1| a\ny\n", "1| a\n0| a\nx\n0| b\ny\n")
        self.assert_differs("0| a\n0| b\n", "0| b\n0| a\n")
        self.assert_differs("0| a\n", "0| a\n1| a\n")
        self.assert_same("0| a\n…\n", "0| a\n1| a\n")


if __name__ == "__main__":
    unittest.main()
