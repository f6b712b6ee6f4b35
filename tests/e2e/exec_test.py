"""`muster exec`: commands beside running ranks, and who may run them."""

import os
import pathlib
import re
import signal
import subprocess
import termios
import unittest

from tests.support.cluster import Cluster, binary, shell_spec, wait_until
from tests.support.terminal import Terminal
from tests.support.users import UsersCluster

SLEEP = "echo started; exec sleep 600"


def exists(pid):
    return pathlib.Path(f"/proc/{pid}").exists()


class ExecTest(unittest.TestCase):
    def start(self, cluster, script=SLEEP, ranks=2):
        job = cluster.submit(shell_spec("runs", script, ranks=ranks))
        cluster.wait_for_state(job, "RUNNING")
        return job

    def test_runs_beside_rank_and_exits_with_its_code(self):
        with Cluster(nodes=1, slots=2) as cluster:
            job = self.start(cluster)
            result = cluster.muster("exec", job, "--rank", "1", "--", "sh", "-c",
                                    "echo $RANK $MUSTER_JOB_ID; pwd; echo problem >&2; exit 7", check=False)
            self.assertEqual(result.returncode, 7, result.stderr)
            lines = result.stdout.splitlines()
            self.assertEqual(lines[0], f"1 {job}")
            self.assertEqual(lines[1], str(cluster.directory / "node-1" / "jobs" / job / "work" / "rank-0001"))
            self.assertEqual(result.stderr, "problem\n")
            self.assertEqual(cluster.muster("exec", job, "--", "sh", "-c", "kill -TERM $$", check=False).returncode,
                             128 + signal.SIGTERM)
            missing = cluster.muster("exec", job, "--", "no-such-program", check=False)
            self.assertEqual(missing.returncode, 127)
            self.assertIn("no-such-program: No such file or directory", missing.stderr)
            # stdin, in both directions and of more than any buffer.
            data = os.urandom(5 << 20)
            copied = subprocess.run(cluster.command("exec", job, "--", "cat"), env=cluster.client_env(), input=data,
                                    capture_output=True, timeout=60)
            self.assertEqual(copied.returncode, 0, copied.stderr)
            self.assertEqual(copied.stdout, data)
            # The job is not affected.
            self.assertEqual(cluster.get(job)["state"], "RUNNING")
            cluster.muster("cancel", job, "--force")

    def test_command_ends_with_client_and_with_rank(self):
        with Cluster(nodes=1, slots=2) as cluster:
            job = self.start(cluster, ranks=1)
            script = "sleep 600 & echo $!; wait"
            client = cluster.popen("exec", job, "--", "sh", "-c", script)
            child = int(client.stdout.readline())
            self.assertTrue(exists(child))
            client.kill()
            client.communicate()
            wait_until(lambda: not exists(child), 20, "the command to be killed with its client")
            # SIGINT is passed on; a second one disconnects.
            client = cluster.popen("exec", job, "--", "sh", "-c", "trap 'echo caught' INT; echo ready; "
                                                                  "while :; do sleep 0.05; done")
            self.assertEqual(client.stdout.readline(), "ready\n")
            client.send_signal(signal.SIGINT)
            self.assertEqual(client.stdout.readline(), "caught\n")
            client.send_signal(signal.SIGINT)
            client.communicate(timeout=30)
            self.assertEqual(client.returncode, 130)

            client = cluster.popen("exec", job, "--", "sh", "-c", script)
            child = int(client.stdout.readline())
            cluster.muster("cancel", job, "--force")
            client.communicate(timeout=30)
            self.assertEqual(client.returncode, 128 + signal.SIGKILL)
            wait_until(lambda: not exists(child), 20, "the command to be killed with its rank")
            cluster.wait(job, check=False)
            late = cluster.muster("exec", job, "--", "true", check=False)
            self.assertEqual(late.returncode, 1)
            self.assertIn(f"job {job} is CANCELLED; a command needs a running rank", late.stderr)

    def test_terminal(self):
        with Cluster(nodes=1, slots=2) as cluster:
            job = self.start(cluster, ranks=1)
            env = dict(cluster.client_env(), TERM="xterm")
            terminal = Terminal(cluster.command("exec", job, "--", "sh"), env)
            termios.tcsetwinsize(terminal.fd, (31, 97))
            terminal.type("echo is-$((40 + 2)); tty; stty size; echo $TERM\r")
            terminal.wait_for("is-42")
            terminal.wait_for("/dev/pts/")
            terminal.wait_for("31 97")
            terminal.wait_for("xterm")
            self.assertFalse(termios.tcgetattr(terminal.fd)[3] & termios.ICANON)  # raw
            # A change of the size, and Ctrl-C for the program in the foreground.
            termios.tcsetwinsize(terminal.fd, (32, 98))
            terminal.type("sh -c 'echo go-$((1 + 1)); exec sleep 600'\r")
            terminal.wait_for("go-2")
            terminal.type("\x03")
            terminal.type("stty size\r")
            terminal.wait_for("32 98")
            terminal.type("exit 5\r")
            self.assertEqual(terminal.exit_status(), 5)
            # The settings are restored, also after a failure and after a signal.
            muster = binary("cli/muster")
            terminal = Terminal(["sh", "-c", f"stty -g; {muster} exec {job} -- sh -c 'exit 3'; stty -g; "
                                             f"{muster} exec no-job -- sh; stty -g; "
                                             f"timeout --foreground 2 {muster} exec {job} -- sleep 600; stty -g"], env)
            self.assertEqual(terminal.exit_status(), 0)
            settings = re.findall(r"^[0-9a-f]+(?::[0-9a-f]+){10,}", terminal.shown, re.M)
            self.assertEqual(len(settings), 4, terminal.shown)
            self.assertEqual(len(set(settings)), 1, terminal.shown)
            cluster.muster("cancel", job, "--force")

    def test_only_owner_and_admin_may_run_commands(self):
        with UsersCluster(nodes=1, slots=2) as cluster:
            spec = cluster.write_spec(shell_spec("mine", SLEEP))
            job = cluster.as_user("alice", "submit", spec, "-o", "name").stdout.strip()
            cluster.wait_for_state(job, "RUNNING")
            self.assertEqual(cluster.get(job)["owner"], "alice")
            refused = cluster.as_user("bob", "exec", job, "--", "true")
            self.assertEqual(refused.returncode, 77)
            self.assertIn(f"job {job} belongs to alice", refused.stderr)
            self.assertEqual(cluster.as_user("alice", "exec", job, "--", "true").returncode, 0)
            self.assertEqual(cluster.muster("exec", job, "--", "true").returncode, 0)  # the local token is an admin
            # Messages name who acted.
            self.assertEqual(cluster.as_user("alice", "cancel", job, "--force").returncode, 0)
            self.assertEqual(cluster.wait(job, check=False)["message"], "cancelled by alice")
            self.assertIn("cancelled by alice", cluster.muster("describe", job, "--events").stdout)


if __name__ == "__main__":
    unittest.main()
