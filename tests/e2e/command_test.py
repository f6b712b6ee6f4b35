"""Command jobs: any program, notably an unmodified PyTorch script, gets its environment and is stopped completely."""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import unittest

from tests.support.cluster import ROOT, Cluster, command_spec, shell_spec, wait_until

PYTHON = "/usr/bin/python3"  # the interpreter for which python3-torch is installed
SCRIPT = str(ROOT / "tests/e2e/ddp_fashion_mnist.py")
SMALL = ("--images", "512", "--epochs", "1")

# Connects to its peers as torch's store does: rank 0 listens on every address, the others connect.
MEET = """
import os, socket, time
rank, world, port = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
me = os.environ["MUSTER_JOB_ID"].encode()
if rank == 0:
    with socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        peers = [server.accept()[0] for _ in range(world - 1)]
        print(sorted({peer.recv(100).decode() for peer in peers} | {me.decode()}))
else:
    while True:
        try: peer = socket.create_connection((os.environ["MASTER_ADDR"], port)); break
        except ConnectionRefusedError: time.sleep(0.1)
    peer.sendall(me)
"""

STORE = """
import os, torch.distributed as dist
from datetime import timedelta
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, rank == 0,
                      timedelta(seconds=240))
store.set(f"rank-{rank}", os.environ["MUSTER_JOB_ID"])
print([store.get(f"rank-{r}").decode() for r in range(world)], flush=True)
store.add("done", 1)
while rank == 0 and store.add("done", 0) < world: pass
"""

# Starts a program that is hard to find and to stop, and writes its pid to a file.
HIDE = """
exec /usr/bin/python3 -c '
import os, signal, sys, time
for _ in range(2):
    if os.fork(): 
        if _ == 0: time.sleep(600)
        os._exit(0)
    os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1] + ".tmp", "w") as f: f.write(str(os.getpid()))
os.rename(sys.argv[1] + ".tmp", sys.argv[1])
time.sleep(600)
' $MARK-$RANK"""


def losses(text):
    """{(step, rank): loss as printed}"""
    return {(int(s), int(r)): loss for s, r, loss in re.findall(r"^step (\d+) rank (\d+) loss (\S+)$", text, re.M)}


def is_alive(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def run_by_hand(world, *arguments):
    """Output of each process when started manually."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("", 0))
        env = dict(os.environ, WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(s.getsockname()[1]),
                   OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", PYTHONUNBUFFERED="1")
        processes = [subprocess.Popen([PYTHON, SCRIPT, *arguments], stdout=subprocess.PIPE, text=True,
                                      env=dict(env, RANK=str(r), LOCAL_RANK=str(r)))
                     for r in range(world)]
        try:
            return [p.communicate(timeout=120)[0] for p in processes]
        finally:
            for p in processes:
                p.kill()


class CommandTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=2, slots=32))

    def logs(self, job, rank, *args):
        return self.cluster.muster("logs", job, "--rank", rank, *args).stdout

    def ranks_environments(self, job, count):
        environments = []
        for rank in range(count):
            lines = re.sub(r"^\S*\| ", "", self.logs(job, rank), flags=re.M).splitlines()
            environments.append(dict(line.split("=", 1) for line in lines if "=" in line))
        return environments

    # ---- PyTorch

    def test_pytorch_script_matches_manual_start(self):
        """4 processes on 2 nodes print the same losses, to the last digit, as without Muster."""
        checkpoint = self.cluster.directory / "model.pt"
        job = self.cluster.submit(command_spec("ddp", PYTHON, SCRIPT, *SMALL, "--checkpoint", str(checkpoint),
                                               nodes=2, ranks=2))
        finished = self.cluster.wait(job)
        self.assertEqual(finished["state"], "SUCCEEDED", finished)
        ours = {}
        for rank in range(4):
            ours.update(losses(re.sub(r"^\S*\| ", "", self.logs(job, rank), flags=re.M)))
        theirs = {}
        for text in run_by_hand(4, *SMALL):
            theirs.update(losses(text))
        self.assertEqual(len(theirs), 4 * 4)  # 512 images, 4 ranks, 32 each: 4 steps
        self.assertEqual(ours, theirs)
        self.assertGreater(len(set(ours.values())), 12)
        self.assertTrue(checkpoint.is_file())

    def test_32_concurrent_jobs_use_distinct_master_ports(self):
        """All on one host: each job finds only its own ranks at its MASTER_PORT."""
        jobs = [self.cluster.submit(command_spec(f"meet-{i}", PYTHON, "-c", MEET, nodes=2, ranks=1))
                for i in range(32)]
        for job in jobs:
            finished = self.cluster.wait(job)
            self.assertEqual(finished["state"], "SUCCEEDED", finished)
            self.assertIn(str([job]), self.logs(job, 0))

    def test_concurrent_torch_stores(self):
        """6 jobs of 2 ranks with PyTorch's own store."""
        jobs = [self.cluster.submit(command_spec(f"store-{i}", PYTHON, "-c", STORE, nodes=2, ranks=1))
                for i in range(6)]
        for job in jobs:
            finished = self.cluster.wait(job, timeout=300)
            self.assertEqual(finished["state"], "SUCCEEDED", finished)
            for rank in range(2):
                self.assertIn(str([job, job]), self.logs(job, rank))

    # ---- environment

    def test_environment(self):
        spec = shell_spec("env", "exec env", nodes=2, ranks=2, restart={"max": 2}, grace_period="1500ms",
                          env={"MINE": "yes", "OMP_NUM_THREADS": "3"})
        job = self.cluster.submit(spec)
        self.assertEqual(self.cluster.wait(job)["state"], "SUCCEEDED")
        ranks = self.ranks_environments(job, 4)
        for rank, env in enumerate(ranks):
            node = rank // 2
            expected = {
                "RANK": rank, "WORLD_SIZE": 4, "LOCAL_RANK": rank % 2, "LOCAL_WORLD_SIZE": 2,
                "GROUP_RANK": node, "NODE_RANK": node, "GROUP_WORLD_SIZE": 2,
                "ROLE_RANK": rank, "ROLE_WORLD_SIZE": 4, "ROLE_NAME": "default",
                "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": job, "TORCHELASTIC_RESTART_COUNT": 0,
                "TORCHELASTIC_MAX_RESTARTS": 2, "TORCHELASTIC_USE_AGENT_STORE": "False",
                "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": 3, "PYTHONUNBUFFERED": 1,
                "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "MINE": "yes",
                "MUSTER_JOB_ID": job, "MUSTER_GENERATION": 1, "MUSTER_NODE_NAME": f"node-{node + 1}",
                "MUSTER_GRACE_SECONDS": 1.5, "MUSTER_CHECKPOINT_SHARED": 0,
            }
            self.assertEqual({k: env.get(k) for k in expected}, {k: str(v) for k, v in expected.items()})
            for name in ("TORCHELASTIC_ERROR_FILE", "MUSTER_PROGRESS", "MUSTER_CHECKPOINT_DIR"):
                self.assertTrue(env[name].startswith(str(self.cluster.directory / f"node-{node + 1}")), env[name])
            self.assertTrue(os.path.isdir(env["MUSTER_CHECKPOINT_DIR"]))
        self.assertEqual(len({env["MASTER_PORT"] for env in ranks}), 1)
        self.assertEqual(len({env["MUSTER_PROGRESS"] for env in ranks}), 4)
        self.assertEqual(len({env["MUSTER_CHECKPOINT_DIR"] for env in ranks}), 2)  # one per node
        self.assertIn(f'{ranks[0]["MUSTER_CHECKPOINT_DIR"]} on node-1; every node has its own '
                      "(MUSTER_CHECKPOINT_SHARED=0)\n", self.cluster.muster("describe", job).stdout)

    def test_restarted_job_sees_restart_count(self):
        """Only the checkpoint directory is passed from one generation to the next."""
        script = """
            [ $RANK = 0 ] || exec sleep 600
            [ -e $MUSTER_CHECKPOINT_DIR/left ] && exec echo count $TORCHELASTIC_RESTART_COUNT generation $MUSTER_GENERATION
            touch $MUSTER_CHECKPOINT_DIR/left; exit 3"""
        job = self.cluster.run(shell_spec("again", script, restart={"max": 1}))
        self.assertEqual((job["state"], int(job["generation"])), ("SUCCEEDED", 2))
        self.assertIn("count 1 generation 2", self.logs(job["job_id"], 0))

    # ---- failure reports

    def check_cannot_start(self, spec, status, *words):
        """The job fails at once without restart, and the message names the path and the node."""
        result = self.cluster.muster("run", self.cluster.write_spec(dict(spec, restart={"max": 3})), "-o", "json",
                                     check=False)
        self.assertEqual(result.returncode, status, result.stderr)
        job = json.loads(result.stdout)
        self.assertEqual((job["reason"], int(job["generation"])), ("LaunchFailed", 1), job)
        for word in ("node-1", *words):
            self.assertIn(word, job["message"])

    def test_command_that_does_not_exist(self):
        self.check_cannot_start(command_spec("none", "/no/such/program"), 127, "exec /no/such/program: No such file")
        self.check_cannot_start(command_spec("none", "no-such-program"), 127,
                                "exec no-such-program: not found in PATH=")

    def test_command_that_cannot_be_executed(self):
        self.check_cannot_start(command_spec("data", "/etc/passwd"), 126, "exec /etc/passwd: Permission denied")
        script = self.cluster.directory / "script"
        script.write_text("#!/no/such/interpreter\n")
        script.chmod(0o755)
        self.check_cannot_start(command_spec("script", str(script)), 127, "the interpreter named in its first line")

    def test_missing_workdir(self):
        self.check_cannot_start(command_spec("dir", "/bin/true", workdir="/no/such/folder"), 66,
                                "workdir /no/such/folder: No such file or directory")

    def test_recorded_error_is_the_cause(self):
        """The file of @record determines the cause, whatever is on stderr; a malformed file is ignored."""
        error = json.dumps({"message": {"message": "ValueError: no such layer",
                                        "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1"}}})
        job = self.cluster.run(shell_spec("record", f"echo '{error}' > $TORCHELASTIC_ERROR_FILE; echo x >&2; exit 1"),
                               check=False)
        self.assertEqual((job["state"], job["exit_code"]), ("FAILED", 1))
        self.assertIn("exited with code 1: ValueError: no such layer", job["message"])
        job = self.cluster.run(shell_spec("garbage", "echo '{{{' > $TORCHELASTIC_ERROR_FILE; exit 4"), check=False)
        self.assertEqual((job["state"], job["exit_code"]), ("FAILED", 4))

    def test_raising_rank_is_the_cause(self):
        """Rank 3 of 4 raises during training; the resulting Gloo errors of the others are not the cause."""
        script = pathlib.Path(SCRIPT).read_text().replace(
            "loss.backward()", "loss.backward()\n            assert not (step == 1 and rank == 3), 'out of luck'")
        path = self.cluster.directory / "raises.py"
        path.write_text(script)
        job = self.cluster.run(command_spec("raises", PYTHON, str(path), *SMALL, nodes=2, ranks=2), check=False)
        self.assertEqual((job["state"], job["exit_code"]), ("FAILED", 1), job)
        failure = job["first_failure"]
        self.assertEqual((int(failure["rank"]), failure["node"]), (3, "node-2"), failure)
        self.assertIn("AssertionError: out of luck", failure["message"])
        self.assertIn("Traceback (most recent call last)", failure["exit"]["stderr_tail"])

    # ---- progress

    def test_progress(self):
        go = self.cluster.directory / "go"
        script = f"""
            echo 'phase=warm-up' >> $MUSTER_PROGRESS
            echo 'step=5 loss=0.25 total_steps=20 epoch=0.5 images_per_second=123' >> $MUSTER_PROGRESS
            head -c 100000 /dev/urandom >> $MUSTER_PROGRESS; echo >> $MUSTER_PROGRESS
            until [ -e {go} ]; do sleep 0.05; done
            echo 'step=20 loss=0.125 phase=training' >> $MUSTER_PROGRESS"""
        job = self.cluster.submit(shell_spec("progress", script))
        progress = self.cluster.wait_for_step(job, 5, timeout=10)["progress"]
        self.assertEqual((progress["phase"], progress["loss"], int(progress["total_steps"])), ("warm-up", 0.25, 20))
        self.assertEqual(progress["images_per_second"], 123)
        go.touch()
        finished = self.cluster.wait(job)
        self.assertEqual(finished["state"], "SUCCEEDED")
        self.assertEqual((int(finished["progress"]["step"]), finished["progress"]["loss"]), (20, 0.125))

    # ---- stop

    def test_stop_ends_forked_processes(self):
        """Double-forked, in separate sessions, ignoring SIGTERM; an unrelated, similar process is left alone."""
        stranger = subprocess.Popen([PYTHON, "-c", "import os, signal, time; os.setsid(); "
                                     "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"])
        try:
            mark = self.cluster.directory / "hidden"
            job = self.cluster.submit(shell_spec("hide", HIDE, nodes=2, ranks=1, env={"MARK": str(mark)}))
            hidden = [int(wait_until(lambda r=rank: (p := pathlib.Path(f"{mark}-{r}")).exists() and p.read_text(),
                                     20, "hidden process")) for rank in range(2)]
            self.assertTrue(all(map(is_alive, hidden)))
            self.cluster.muster("cancel", job, "--grace", "200ms")
            self.cluster.wait_for_state(job, "CANCELLED")
            self.assertEqual([is_alive(pid) for pid in hidden], [False, False])
            self.assertTrue(is_alive(stranger.pid))
        finally:
            stranger.kill()
            stranger.wait()

    def test_uses_grace_period_of_job(self):
        script = "trap 'sleep 1; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
        job = self.cluster.submit(shell_spec("grace", script, grace_period="20s"))
        wait_until(lambda: "ready" in self.logs(job, 0), 20, "ready")
        self.cluster.muster("cancel", job)
        self.cluster.wait_for_state(job, "CANCELLED")
        self.assertIn("saved", self.logs(job, 0))


class SharedCheckpointTest(unittest.TestCase):
    """All nodes of the cluster share a checkpoint directory."""

    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="muster-shared.")))
        cls.cluster = cls.enterClassContext(Cluster(nodes=2, coordinator_flags=[f"--checkpoint-dir={cls.shared}"]))

    def test_directory_is_equal_on_all_nodes(self):
        """Rank 1 on the second node reads what rank 0 of the generation before wrote on the first."""
        script = """
            echo "$MUSTER_CHECKPOINT_DIR $MUSTER_CHECKPOINT_SHARED"
            [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exec cat $MUSTER_CHECKPOINT_DIR/model
            [ $RANK = 0 ] || exec sleep 600
            echo weights > $MUSTER_CHECKPOINT_DIR/model; exit 3"""
        job = self.cluster.run(shell_spec("share", script, nodes=2, restart={"max": 1}))
        self.assertEqual((job["state"], int(job["generation"])), ("SUCCEEDED", 2), job)
        directory = str(self.shared / job["job_id"])
        self.assertEqual((job["checkpoint"]["dir"], job["checkpoint"]["shared"]), (directory, True))
        self.assertRegex(self.cluster.muster("describe", job["job_id"]).stdout,
                         rf"\nCheckpoint: +{directory}, shared by all nodes\n")
        for rank in range(2):
            log = self.cluster.muster("logs", job["job_id"], "--rank", rank).stdout
            self.assertIn(f"{directory} 1\n", log)
            self.assertIn("weights\n", log)

    def test_spec_overrides_directory(self):
        directory = str(self.shared / "mine")
        job = self.cluster.run(shell_spec("mine", "touch $MUSTER_CHECKPOINT_DIR/rank-$RANK", nodes=2,
                                          checkpoint_dir=directory))
        self.assertEqual(job["checkpoint"]["dir"], directory)
        self.assertEqual(sorted(os.listdir(directory)), ["rank-0", "rank-1"])

    def test_unusable_directory_fails_the_launch(self):
        directory = str(self.shared / "not-mounted" / "job")
        spec = self.cluster.write_spec(shell_spec("bad", "true", checkpoint_dir=directory, restart={"max": 3}))
        result = self.cluster.muster("run", spec, "-o", "json", check=False)
        self.assertEqual(result.returncode, 73, result.stderr)
        job = json.loads(result.stdout)
        self.assertEqual((job["reason"], int(job["generation"])), ("LaunchFailed", 1), job)
        self.assertRegex(job["message"], f"on node-[12] could not be started: checkpoint directory {directory}: "
                                         "No such file or directory; its parent must exist on every node")


class LeavingTest(unittest.TestCase):
    def test_stopping_worker_stops_its_ranks(self):
        with Cluster(nodes=1) as cluster:
            job = cluster.submit(shell_spec("leave", "trap 'echo bye; exit 0' TERM; echo ready; "
                                                     "while :; do sleep 0.05; done", grace_period="10s",
                                                     output="separate"))
            cluster.wait_for_state(job, "RUNNING")
            wait_until(lambda: "ready" in cluster.muster("logs", job).stdout, 10, "ready")
            self.assertEqual(cluster.workers["node-1"].stop(), 0)
            log = next((cluster.directory / "node-1").glob("jobs/*/logs/generation-1/rank-0000.stdout"))
            self.assertEqual(log.read_text(), "ready\nbye\n")

    def test_deletes_logs_after_retention_time(self):
        with Cluster(nodes=1, worker_flags=["--keep-logs=1s"]) as cluster:
            job = cluster.run(shell_spec("old", "echo x"))["job_id"]
            wait_until(lambda: not list((cluster.directory / "node-1" / "jobs").glob("*")), 20, "the job's directory to be deleted")
            result = cluster.muster("logs", job)
            self.assertEqual(result.stdout, "x\n")
            self.assertIn("node node-1 no longer has the log", result.stderr)


class ManyPyTorchJobsTest(unittest.TestCase):
    def test_32_concurrent_pytorch_jobs(self):
        """All on one host with 2 ranks each: every job starts, trains, and prints the same losses."""
        with Cluster(nodes=2, slots=32) as cluster:
            jobs = [cluster.submit(command_spec(f"ddp-{i}", PYTHON, SCRIPT, *SMALL, nodes=2, ranks=1))
                    for i in range(32)]
            printed = set()
            for job in jobs:
                finished = cluster.wait(job, timeout=600)
                self.assertEqual(finished["state"], "SUCCEEDED", finished)
                text = re.sub(r"^\S*\| ", "", cluster.muster("logs", job, "--rank", "0").stdout, flags=re.M)
                printed.add(str(sorted(losses(text).items())))
            self.assertEqual(len(printed), 1)


if __name__ == "__main__":
    unittest.main()
