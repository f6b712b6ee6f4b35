"""A C++ program that uses the process-group library, as a command job and started manually."""

import os
import re
import signal
import socket
import subprocess
import unittest

from tests.support.cluster import ROOT, Cluster, binary, command_spec, wait_until

PROGRAM = "examples/allreduce"


def logs(cluster, job):
    return cluster.muster("logs", job).stdout


class JobTest(unittest.TestCase):

    def test_example_runs_on_every_rank(self):
        with Cluster(nodes=2, slots=2) as cluster:
            spec = str(ROOT / "deploy/examples/allreduce.yaml")
            job = cluster.muster("submit", spec, "-o", "name", "--", binary(PROGRAM), "--elements=10001").stdout.strip()
            self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
            lines = re.findall(r"rank (\d) of 4 \((\d) of 4 on its host\), shm: 20 sums of 10001 elements", logs(cluster, job))
            self.assertEqual(sorted(lines), [(str(rank), str(rank)) for rank in range(4)])

    def test_killed_rank_is_the_cause_of_failure(self):
        with Cluster(nodes=1, slots=3) as cluster:
            job = cluster.submit(command_spec("sums", binary(PROGRAM), "--rounds=1000000", ranks=3, failure_timeout="60s"))
            cluster.wait_for_state(job, "RUNNING")

            def rank(number):
                return [pid for pid, command in cluster.processes()
                        if command.startswith(binary(PROGRAM)) and environment(pid).get("RANK") == number]

            # All ranks, once they have connected and so mapped the shared memory.
            pids = wait_until(lambda: [pid for number in "012" for pid in rank(number) if shares_memory(pid)][2:] and
                              rank("2"), 30, "the ranks to connect")
            os.kill(pids[0], signal.SIGKILL)
            finished = cluster.wait(job, timeout=20, check=False)
            self.assertEqual(finished["state"], "FAILED")
            self.assertEqual(finished["first_failure"]["rank"], 2)


def environment(pid):
    with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
        return dict(pair.split("=", 1) for pair in file.read().split("\0") if "=" in pair)


def shares_memory(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        return "memfd:" in file.read()


class ByHandTest(unittest.TestCase):

    def start(self, rank, *flags, **env):
        return subprocess.Popen([binary(PROGRAM), "--elements=1000", *flags], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=dict(os.environ, **env))

    def test_two_processes_configured_by_environment(self):
        port = free_port()
        ranks = [self.start(rank, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
                 for rank in (0, 1)]
        for number, rank in enumerate(ranks):
            out, err = rank.communicate(timeout=60)
            self.assertEqual(rank.returncode, 0, err)
            self.assertIn(f"rank {number} of 2", out)

    def test_address_instead_of_environment(self):
        address = f"--address=tcp://127.0.0.1:{free_port()}"
        ranks = [self.start(rank, address, f"--rank={rank}", "--world-size=3", "--backend=gloo") for rank in range(3)]
        for rank in ranks:
            out, err = rank.communicate(timeout=60)
            self.assertEqual(rank.returncode, 0, err)
            self.assertIn("gloo: 20 sums", out)

    def test_names_missing_variable(self):
        env = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
        result = subprocess.run([binary(PROGRAM)], text=True, capture_output=True, timeout=60, check=False, env=env)
        self.assertEqual(result.returncode, 1)
        self.assertIn("allreduce: WORLD_SIZE is not set", result.stderr)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    unittest.main()
