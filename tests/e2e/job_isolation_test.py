"""What a job cannot do under `--job-user={owner}`: each attempt is made by a rank, and refused by the kernel."""

import json
import os
import pathlib
import unittest

from tests.support.cluster import command_spec, shell_spec, training_spec, wait_until
from tests.support.job_user_cluster import ALICE, BOB, JobUserCluster, parent_of, users_of

PYTHON = "/usr/bin/python3"

# Prints a JSON object: the errno of each attempt, 0 if it succeeded.
ATTACK = r"""
import ctypes, errno, json, os, signal, socket, subprocess, sys
targets = json.loads(os.environ["TARGETS"])
libc = ctypes.CDLL(None, use_errno=True)
results = {}

def attempt(name, action):
    try:
        action()
        results[name] = "succeeded"
    except OSError as error:
        results[name] = errno.errorcode[error.errno]

def read(path):
    with open(path, "rb") as file:
        file.read(1)

def write(path):
    with open(path, "ab") as file:
        file.write(b"x")

def connect(path):
    os.chdir(os.path.dirname(path))  # fails, or the name is short enough
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(os.path.basename(path))

def call(name, *arguments):
    if libc[name](*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)

def peek(pid):
    buffer = ctypes.create_string_buffer(8)
    local = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
    remote = (ctypes.c_void_p * 2)(0x1000, 8)
    call("process_vm_readv", pid, local, ctypes.c_ulong(1), remote, ctypes.c_ulong(1), ctypes.c_ulong(0))

for path in targets["read"]: attempt("read " + path, lambda: read(path))
for path in targets["list"]: attempt("list " + path, lambda: os.listdir(path))
for path in targets["write"]: attempt("write " + path, lambda: write(path))
for path in targets["make"]: attempt("make in " + path, lambda: os.mkdir(path + "/made"))
for path in targets["remove"]: attempt("remove " + path, lambda: os.rename(path, path + "-gone"))
for path in targets["connect"]: attempt("connect " + path, lambda: connect(path))
for pid in targets["processes"]:
    attempt(f"kill {pid}", lambda: os.kill(pid, signal.SIGKILL))
    attempt(f"stop {pid}", lambda: os.kill(pid, signal.SIGSTOP))
    attempt(f"trace {pid}", lambda: call("ptrace", 0x4206, ctypes.c_long(pid), None, None))
    attempt(f"peek {pid}", lambda: peek(pid))
    attempt(f"priority {pid}", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    for name in ("environ", "mem", "maps", "cwd/file", "root/etc/passwd", "fd/1"):
        attempt(f"read /proc/{pid}/{name}", lambda: read(f"/proc/{pid}/{name}"))
attempt("setuid", lambda: os.setuid(0))
attempt("setgid", lambda: os.setgid(0))
attempt("setgroups", lambda: os.setgroups([0]))
attempt("owner", lambda: os.setresuid(targets["uid"], targets["uid"], targets["uid"]))
attempt("chroot", lambda: os.chroot("/"))
# A program with a set-user-ID bit stays the user's.
results["set-user-ID"] = subprocess.run([targets["set_user_id"], "-u"], capture_output=True, text=True).stdout.strip()
print(json.dumps(results))
"""


@unittest.skipIf(os.geteuid() != 0, "requires root")
class JobIsolationTest(unittest.TestCase):
    def secret_files(self, cluster):
        """Files that only the daemons may read."""
        found = [path for path in (cluster.directory / "coordinator").rglob("*") if path.is_file()]
        found += [path for path in (cluster.directory / "node-1").rglob("*")
                  if path.is_file() and "jobs" not in path.parts and path.suffix != ".pem"]
        found += [*cluster.directory.glob("*.token"), *cluster.directory.glob("admin/*.key"),
                  *cluster.directory.glob("admin/*.token")]
        names = {path.name for path in found}
        for name in ("node.key", "ca.key", "token", "coordinator.sqlite", "audit.log", "cluster.pb", "admin.token"):
            self.assertIn(name, names)
        return found

    def test_attempts_are_refused(self):
        cluster = self.enterContext(JobUserCluster(nodes=1, slots=4))
        node = cluster.directory / "node-1"
        victim = cluster.submit_as(BOB, shell_spec(
            "victim", "echo secret > file; echo step=1 >> $MUSTER_PROGRESS; echo in the log; exec sleep 600"))
        cluster.wait_for_step(victim, 1)
        rank = cluster.rank_pid(victim)
        trains = cluster.submit_as(BOB, training_spec("trains", max_steps=1_000_000, dataset={
            "name": "fashion_mnist", "path": str(cluster.dataset)}))
        cluster.wait_for_step(trains, 1)
        own = cluster.submit_as(ALICE, shell_spec("own", "exec sleep 600"))
        cluster.wait_for_state(own, "RUNNING")
        wait_until(lambda: cluster.describe(own)["ranks"][0].get("pid"), 20, "the rank's pid")
        own_rank = cluster.rank_pid(own)

        secrets = [path for path in self.secret_files(cluster) if path.exists()]
        for path in secrets:
            if path.suffix in (".key", ".token") or path.name in ("token", "tokens", "lock"):
                self.assertEqual(path.stat().st_mode & 0o077, 0, path)
                self.assertEqual(path.stat().st_uid, 0, path)
        jobs = node / "jobs"
        of_victim = [path for job in (victim, trains) for path in (jobs / job).rglob("*") if path.is_file()]
        names = {path.name for path in of_victim}
        for name in ("instructions", "launch.pb", "progress", "file", "rank-0000.stdout", "rank-0000.stderr"):
            self.assertIn(name, names)
        rank_directory = jobs / own / "generation-1/rank-0000"
        own_files = [path for path in rank_directory.iterdir() if path.is_file()]
        own_files += [path for path in (jobs / own / "logs").rglob("*") if path.is_file()]
        self.assertIn("instructions", {path.name for path in own_files})
        memory = next(pathlib.Path("/dev/shm").glob(f"muster-*/{trains}")).parent
        set_user_id = cluster.directory / "bin/id"
        set_user_id.write_bytes(pathlib.Path("/usr/bin/id").read_bytes())
        set_user_id.chmod(0o4755)
        targets = {
            "read": [*map(str, secrets), *map(str, of_victim), *map(str, own_files)],
            "list": [str(path) for path in (
                cluster.directory / "coordinator", node, jobs, node / "cache", node / "files", jobs / victim,
                jobs / victim / "work", jobs / victim / "work/rank-0000", jobs / victim / "checkpoint",
                jobs / victim / "generation-1", jobs / victim / "generation-1/rank-0000",
                jobs / victim / "generation-1/rank-0000/user", jobs / victim / "logs", jobs / own, jobs / own / "logs",
                rank_directory, memory, memory / trains)],
            "write": [*map(str, own_files), *(str(rank_directory / name) for name in ("exit", "report.pb", "inspection"))],
            "make": [str(path) for path in (node, node / "run", jobs, jobs / own, jobs / own / "work", rank_directory,
                                            jobs / victim / "work/rank-0000", memory)],
            "remove": [str(rank_directory / "user"), str(jobs / own / "work/rank-0000"), str(node / "run/rank.sock")],
            "connect": [str(rank_directory / "shim.sock"), str(jobs / victim / "generation-1/rank-0000/shim.sock")],
            "processes": [rank, parent_of(rank), parent_of(own_rank), cluster.workers["node-1"].pid,
                          cluster.coordinator.pid],
            "uid": users_of(rank)[0],
            "set_user_id": str(set_user_id),
        }
        spec = command_spec("attack", PYTHON, "-c", ATTACK, env={"TARGETS": json.dumps(targets)})
        attack = cluster.submit_as(ALICE, spec)
        self.assertEqual(cluster.wait(attack)["state"], "SUCCEEDED")
        printed = cluster.muster("logs", attack)
        self.assertTrue(printed.stdout.startswith("{"), f"{printed.stdout}\n{printed.stderr}")
        results = json.loads(printed.stdout)
        self.assertEqual(results.pop("set-user-ID"), str(users_of(own_rank)[0]))
        self.assertGreater(len(results), 100)
        self.assertEqual({name: result for name, result in results.items() if result not in ("EACCES", "EPERM")}, {})

        for job in (victim, trains, own):
            self.assertEqual(cluster.get(job)["state"], "RUNNING")
        self.assertEqual([node["state"] for node in cluster.nodes()], ["READY"])
        step = int(cluster.get(trains)["progress"]["step"])
        cluster.wait_for_step(trains, step + 5)
        for job in (victim, trains, own):
            cluster.muster("cancel", job, "--force")

    def test_job_registers_no_node(self):
        """Not even as its own node: it cannot read the key."""
        cluster = self.enterContext(JobUserCluster(nodes=1))
        folder = cluster.directory / "node-1/identity"
        worker = (f"{cluster.programs}/muster-worker --coordinator=127.0.0.1:{cluster.port} --http=127.0.0.1:0 "
                  f"--data-dir=$PWD/worker --tls-ca={folder}/ca.pem")
        script = "\n".join((
            f"cp {folder}/*.pem .; cp {folder}/node.key .; echo copied $?",
            f"{worker} --name=node-1 --tls-cert={folder}/node.pem --tls-key={folder}/node.key; echo own $?",
            f"{worker} --name=node-2 --tls-cert={folder}/node.pem --tls-key={folder}/node.key; echo other $?",
            f"{worker} --name=node-3; echo without $?",
            f"cat {cluster.directory}/coordinator/token {folder}/node.key; echo read $?"))
        job = cluster.submit_as(ALICE, shell_spec("intruder", script))
        self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
        result = cluster.muster("logs", job)
        output = result.stdout + result.stderr
        for name in ("copied", "own", "other", "without", "read"):
            self.assertRegex(output, rf"{name} [1-9]\d*\n")
        self.assertIn("Permission denied", output)
        self.assertEqual([node["name"] for node in cluster.nodes()], ["node-1"])
