"""Command jobs with `launcher: mpi`: Open MPI's mpirun over the ranks of a job, without ssh."""

import base64
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from tests.support import namespaces
from tests.support.apart import ApartCluster
from tests.support.cluster import Cluster, binary, command_spec, wait_until, wait_until_gone
from tests.support.job_user_cluster import ALICE, JobUserCluster, uid, users_of

WHY_NOT_APART = namespaces.why_not()

ALLREDUCE = "examples/allreduce_mpi"

# What each mode does after an all-reduce that proves that the ranks are connected:
#   (none)    ends
#   exit      rank 2 exits with code 3 and the others wait for it
#   abort     rank 2 calls MPI_Abort with code 3
#   signal    rank 2 dies by SIGSEGV
#   until     waits until the file exists or a rank has received SIGTERM
PROGRAM = r"""
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile sig_atomic_t stopped = 0;
static void on_term(int signal) { stopped = signal; }
static const char* value(const char* name) { return getenv(name) ? getenv(name) : "-"; }
int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "";
  int rank, size, local_size, sum, length, file = access("data.txt", R_OK) == 0;
  char host[MPI_MAX_PROCESSOR_NAME];
  MPI_Comm node;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_processor_name(host, &length);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &local_size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d of %d, %d share memory, sum %d, host %s\n", rank, size, local_size, sum, host);
  printf("RANK=%s WORLD_SIZE=%s LOCAL_RANK=%s NODE=%s COLOR=%s TOKEN=%s file=%d\n", value("RANK"), value("WORLD_SIZE"),
         value("LOCAL_RANK"), value("MUSTER_NODE_NAME"), value("COLOR"), value("TOKEN"), file);
  fflush(stdout);
  if (rank == 2) {
    if (!strcmp(mode, "exit")) exit(3);
    if (!strcmp(mode, "abort")) MPI_Abort(MPI_COMM_WORLD, 3);
    if (!strcmp(mode, "signal")) raise(SIGSEGV);
  }
  if (!strcmp(mode, "until")) {
    int done = 0;
    signal(SIGTERM, on_term);
    printf("ready\n");
    fflush(stdout);
    while (!done) {
      int here = stopped ? 2 : access(argv[2], F_OK) == 0;
      MPI_Allreduce(&here, &done, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
      usleep(1000);
    }
    if (done == 2) printf("stopped\n");  /* a rank of the other node may receive the signal earlier */
  } else if (*mode) {
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return 0;
}
"""

MPI4PY = """
from mpi4py import MPI
world = MPI.COMM_WORLD
print("rank", world.Get_rank(), "of", world.Get_size(), "sum", world.allreduce(world.Get_rank()), flush=True)
"""


def has_process_group():
    with contextlib.suppress(FileNotFoundError):
        return bool(binary(ALLREDUCE))
    return False


def has_mpi4py():
    return subprocess.run(["/usr/bin/python3", "-c", "import mpi4py"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(shutil.which("mpirun") and shutil.which("mpicc"), "Open MPI is not installed")
class MpiTest(unittest.TestCase):
    """A program in C that is built once."""

    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        (folder / "program.c").write_text(PROGRAM)
        cls.program = str(folder / "program")
        subprocess.run(["mpicc", "-O1", "-o", cls.program, folder / "program.c"], check=True)

    def logs(self, cluster, job, rank):
        return cluster.muster("logs", job, "--rank", rank).stdout

    def check_world(self, cluster, job, nodes, ranks_per_node):
        """Every rank of the job has reached every other one and has the environment of its own rank."""
        size = nodes * ranks_per_node
        for rank in range(size):
            log = self.logs(cluster, job, rank)
            self.assertIn(f"rank {rank} of {size}, {ranks_per_node} share memory, sum {sum(range(size))}, host ", log)
            self.assertIn(f"RANK={rank} WORLD_SIZE={size} LOCAL_RANK={rank % ranks_per_node} NODE=node-", log)


class MpiLauncherTest(MpiTest):

    def setUp(self):
        self.cluster = self.enterContext(Cluster(nodes=2, slots=2))

    def spec(self, name, *arguments, program=None, nodes=2, ranks=2, **top):
        return command_spec(name, program or self.program, *arguments, nodes=nodes, ranks=ranks,
                            **{"launcher": "mpi", "grace_period": "20s", **top})

    def processes(self):
        """Processes of jobs, Open MPI's included."""
        return [(pid, command) for pid, command in self.cluster.processes()
                if re.search(r"muster-(mpi|shim)|mpirun|orted|program", command)]

    def failure(self, job):
        return self.cluster.wait(job, check=False)["first_failure"]

    def test_ranks_of_two_nodes_are_one_world(self):
        job = self.cluster.submit(self.spec("world", env={"COLOR": "blue green"}))
        self.assertEqual(self.cluster.wait(job)["state"], "SUCCEEDED")
        self.check_world(self.cluster, job, 2, 2)
        nodes = set()
        for rank in range(4):
            log = self.logs(self.cluster, job, rank)
            self.assertIn("COLOR=blue green ", log)
            nodes.add(re.search(r"NODE=(\S+)", log)[1])
        self.assertEqual(nodes, {"node-1", "node-2"})
        self.assertEqual(wait_until_gone(self.processes, 5), [])

    def test_one_node(self):
        job = self.cluster.submit(self.spec("alone", nodes=1))
        self.assertEqual(self.cluster.wait(job)["state"], "SUCCEEDED")
        self.check_world(self.cluster, job, 1, 2)

    def test_nodes_with_different_numbers_of_ranks(self):
        spec = self.spec("three")
        spec["resources"] = {"ranks": 3}
        job = self.cluster.submit(spec)
        self.assertEqual(self.cluster.wait(job)["state"], "SUCCEEDED")
        self.assertIn("rank 1 of 3, 2 share memory, sum 3", self.logs(self.cluster, job, 1))
        self.assertIn("rank 2 of 3, 1 share memory, sum 3", self.logs(self.cluster, job, 2))

    def test_files_and_secrets_reach_all_processes(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        shutil.copy(self.program, folder / "solver")
        (folder / "data.txt").write_text("data")
        secret = folder / "secret"
        secret.write_text("s3cret")
        self.cluster.muster("secret", "set", "token", "--file", secret)
        result = subprocess.run(
            self.cluster.command("run", "--name", "files", "--nodes", 2, "--ranks-per-node", 2, "--launcher", "mpi",
                                 "--files", "data.txt", "solver", "--set", "env={TOKEN: {secret: token}}",
                                 "--", "./solver"),
            env=self.cluster.client_env(), cwd=folder, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(len(re.findall(r"TOKEN=s3cret file=1", result.stdout)), 4, result.stdout)

    def test_failing_process_is_named_with_its_exit_code(self):
        for mode in ("exit", "abort"):
            with self.subTest(mode):
                failure = self.failure(self.cluster.submit(self.spec(mode, mode)))
                self.assertEqual((failure["rank"], failure["exit"]["exit_code"]), (2, 3), failure)
        self.assertEqual(wait_until_gone(self.processes, 5), [])

    def test_process_that_dies_by_a_signal_is_named(self):
        failure = self.failure(self.cluster.submit(self.spec("signal", "signal")))
        self.assertEqual((failure["rank"], failure["exit"]["signal"]), (2, signal.SIGSEGV), failure)

    def test_program_that_does_not_exist(self):
        failure = self.failure(self.cluster.submit(self.spec("absent", program="no-such-program")))
        self.assertEqual(failure["exit"]["exit_code"], 127)
        self.assertIn("no-such-program: not found in PATH=", failure["message"])

    def test_node_without_open_mpi(self):
        failure = self.failure(self.cluster.submit(self.spec("bare", env={"PATH": "/nowhere"})))
        self.assertEqual(failure["reason"], "LaunchFailed")
        self.assertRegex(failure["message"], r"(mpirun|orted) was not found on node-\d in PATH=/nowhere; install it there "
                                             r"\(Debian's package openmpi-bin\)")

    def start(self, name, **top):
        job = self.cluster.submit(self.spec(name, "until", str(self.cluster.directory / "done"), **top))
        for rank in range(4):
            wait_until(lambda rank=rank: "ready" in self.logs(self.cluster, job, rank), 30, f"rank {rank} ready")
        return job

    def test_cancel_lets_programs_end_and_leaves_no_process(self):
        job = self.start("cancelled")
        self.cluster.muster("cancel", job)
        self.assertEqual(self.cluster.wait(job, check=False)["state"], "CANCELLED")
        self.assertIn("stopped", self.logs(self.cluster, job, 3))
        self.assertEqual(wait_until_gone(self.processes, 5), [])
        self.assertEqual(self.left_in_memory(job), [])

    def left_in_memory(self, job):
        return [path for path in pathlib.Path("/dev/shm").glob(f"muster-*/{job}/mpi-*/*")]

    def test_killed_process_fails_the_job(self):
        job = self.start("killed")
        pid = self.cluster.describe(job)["ranks"][3]["pid"]
        os.kill(int(pid), signal.SIGKILL)
        failure = self.failure(job)
        self.assertEqual((failure["rank"], failure["exit"]["signal"]), (3, signal.SIGKILL), failure)
        self.assertEqual(wait_until_gone(self.processes, 10), [])

    def test_killed_daemon_of_open_mpi_fails_the_job(self):
        job = self.start("orphaned")
        (pid,) = [pid for pid, command in self.cluster.processes() if re.match(r"\S*orted ", command)]
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(self.cluster.wait(job, check=False)["state"], "FAILED")
        self.assertEqual(wait_until_gone(self.processes, 10), [])

    def test_backend_is_refused_with_a_pointer(self):
        result = self.cluster.muster("submit", "--set", "backend=mpi", "--", self.program, check=False)
        self.assertEqual(result.returncode, 78)
        self.assertIn("backend: mpi is not a backend of jobs; for an MPI program, set command and launcher: mpi",
                      result.stderr)

    @unittest.skipUnless(has_mpi4py(), "python3-mpi4py is not installed")
    def test_mpi4py(self):
        job = self.cluster.submit(self.spec("python", "-c", MPI4PY, program="/usr/bin/python3"))
        self.assertEqual(self.cluster.wait(job)["state"], "SUCCEEDED")
        self.assertIn("rank 3 of 4 sum 6", self.logs(self.cluster, job, 3))


@unittest.skipUnless(has_process_group(), "built without MPI: install libopenmpi-dev")
class MpiProcessGroupTest(MpiTest):
    """The backend mpi of the process-group library."""

    def test_process_group(self):
        with Cluster(nodes=2, slots=2) as cluster:

            def submit(name, *command):
                return cluster.submit(command_spec(name, *command, nodes=2, ranks=2, launcher="mpi", grace_period="2s"))

            job = submit("group", binary(ALLREDUCE), "--backend=mpi")
            self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
            for rank in range(4):
                self.assertRegex(self.logs(cluster, job, rank), rf"rank {rank} of 4 \({rank} of 4 on its host\), mpi: 20 sums")

            # The contract of all backends. A failure ends MPI in its process, so each such case runs by itself.
            failures = ["*.AbortEndsAllOperations/*", "*.RejectsInvalidArguments/*"]
            for number, cases in enumerate(["-" + ":".join(failures), *failures]):
                keys = cluster.directory / f"keys-{number}"
                job = submit("contract", "/usr/bin/env", f"MUSTER_TEST_KEYS={keys}", binary("collectives/contract_test"),
                             f"--gtest_filter={cases}")
                cluster.wait(job, check=False)
                ended = [path.read_text() for path in keys.glob("*/[!.]*") if decoded(path.name).startswith(b"ended/")]
                log = self.logs(cluster, job, 0)
                self.assertEqual(set(ended), {"OK"}, log)
                self.assertEqual(len(ended), 4 * len(re.findall(r"\[ RUN ", log)), log)

            job = submit("stopped", binary(ALLREDUCE), "--backend=mpi", "--rounds=1000000000", "--timeout=5")
            # The others too: a rank that is late on a busy machine would be waited for as well.
            pids = [wait_until(lambda: self.connected(cluster, str(rank)), 60, "ranks to connect") for rank in range(4)]
            os.kill(pids[3], signal.SIGSTOP)
            failure = cluster.wait(job, check=False)["first_failure"]
            self.assertEqual(failure["rank"], 3, failure)

    def connected(self, cluster, rank):
        """PID of the rank's program, once it has a thread for the operations of its group."""
        for pid, command in cluster.processes():
            proc = pathlib.Path("/proc", str(pid))
            with contextlib.suppress(OSError):
                if (command.startswith(binary(ALLREDUCE)) and f"\0RANK={rank}\0" in (proc / "environ").read_text() and
                        "WORLD\n" in [thread.read_text() for thread in proc.glob("task/*/comm")]):
                    return pid
        return None


def decoded(name):
    """The key that FileKeyStore keeps in a file of that name."""
    return base64.urlsafe_b64decode(name + "=" * (-len(name) % 4))


class MpiRestartTest(MpiTest):

    def test_job_of_a_killed_worker_restarts(self):
        with Cluster(coordinator_flags=["--lease=3s", "--job-lease=3s"]) as cluster:
            for name in ("node-1", "node-2", "node-3"):
                cluster.start_worker(name, slots=2)
            cluster.wait_for_nodes(3)
            done = cluster.directory / "done"
            job = cluster.submit(command_spec("restarted", self.program, "until", str(done), nodes=2, ranks=2,
                                              launcher="mpi", restart={"max": 1}, failure_timeout="3s"))
            wait_until(lambda: "ready" in self.logs(cluster, job, 3), 30, "ready")
            node = re.search(r"NODE=(\S+)", self.logs(cluster, job, 3))[1]
            for pid, _ in cluster.processes(node):
                with contextlib.suppress(ProcessLookupError):  # it may end with the one killed before
                    os.kill(pid, signal.SIGKILL)
            wait_until(lambda: cluster.get(job).get("generation") == 2, 60, "the second generation")
            done.write_text("")
            self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
            self.check_world(cluster, job, 2, 2)


@unittest.skipIf(os.geteuid() != 0, "requires root")
class MpiJobUserTest(MpiTest):

    def test_processes_run_as_the_owner(self):
        with JobUserCluster(nodes=2, slots=2) as cluster:
            program = shutil.copy(self.program, cluster.directory)
            job = cluster.submit_as(ALICE, command_spec("owned", program, "until", str(cluster.directory / "done"),
                                                        nodes=2, ranks=2, launcher="mpi"))
            wait_until(lambda: "ready" in self.logs(cluster, job, 3), 30, "ready")
            pids = [pid for pid, command in cluster.processes() if re.search(r"mpirun|orted|muster-mpi|program", command)]
            self.assertGreater(len(pids), 8)
            for pid in pids:
                self.assertEqual(users_of(pid), 4 * [uid(ALICE)])
            (cluster.directory / "done").write_text("")
            self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
            self.check_world(cluster, job, 2, 2)


@unittest.skipIf(WHY_NOT_APART, WHY_NOT_APART)
class MpiApartTest(MpiTest):
    """Nodes with addresses, host names, /tmp and /dev/shm of their own."""

    def test_ranks_of_two_machines_are_one_world(self):
        with ApartCluster(nodes=2, slots=2) as cluster:
            for machine in cluster.machines.values():
                machine.install(self.program, "/tmp/solver")
            job = cluster.submit(command_spec("apart", "/tmp/solver", nodes=2, ranks=2, launcher="mpi"))
            self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
            self.check_world(cluster, job, 2, 2)
            hosts = {re.search(r"host (\S+)", self.logs(cluster, job, rank))[1] for rank in range(4)}
            self.assertEqual(len(hosts), 2, hosts)


if __name__ == "__main__":
    unittest.main()
