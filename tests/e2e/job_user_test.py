"""`--job-user`: ranks run as another Unix user than the worker, and reach neither its secrets nor other users' ranks."""

import json
import os
import pathlib
import pwd
import re
import signal
import subprocess
import unittest

from tests.support.cluster import command_spec, shell_spec, training_spec, wait_until
from tests.support.job_user_cluster import ALICE, BOB, STRANGER, JobUserCluster, parent_of, uid, users_of

NOT_ALLOWED = 77
USAGE = 2


@unittest.skipIf(os.geteuid() != 0, "requires root")
class JobUserTest(unittest.TestCase):
    def cluster_of(self, **kwargs):
        return self.enterContext(JobUserCluster(**kwargs))

    def finish(self, cluster, job, state="SUCCEEDED"):
        finished = cluster.wait(job, check=False)
        if finished["state"] != state:
            logs = cluster.muster("logs", job, check=False)
            self.fail(f"{finished}\n{logs.stdout}\n{logs.stderr}")
        return finished

    def test_command_job(self):
        """Files, environment, streams, progress, errors, exec, cp and logs of a command job."""
        cluster = self.cluster_of(nodes=1, slots=4)
        program = cluster.directory / "program.sh"
        program.write_text("""
id -un; id -Gn; echo $HOME $USER $LOGNAME; pwd; umask 022
echo again > /dev/stdout; echo error > /dev/stderr
echo "step=7 loss=0.5" >> $MUSTER_PROGRESS
echo weights > out; ln -s /etc/shadow shadow; mkdir -p $MUSTER_CACHE_DIR/x
echo kept > $MUSTER_CHECKPOINT_DIR/kept
grep -E '^(NoNewPrivs|CapEff|CapPrm|CapInh|CapAmb)' /proc/self/status
ls /proc/$$/fd > descriptors
while [ ! -e end ]; do sleep 0.1; done
""")
        job = cluster.as_owner(ALICE, "submit", "-o", "name", "--", "bash", "program.sh",
                               cwd=cluster.directory).stdout.strip()
        cluster.wait_for_state(job, "RUNNING")
        cluster.wait_for_step(job, 7)
        pid = cluster.rank_pid(job)
        self.assertEqual(users_of(pid), 4 * [uid(ALICE)])
        self.assertEqual(users_of(parent_of(pid)), 4 * [0])

        entry = pwd.getpwnam(ALICE)
        result = cluster.as_owner(ALICE, "exec", job, "--", "sh", "-c",
                                  "id -un; id -ru; cat out; echo x > /dev/stdout; grep NoNewPrivs /proc/self/status")
        self.assertEqual(result.stdout.split(), [ALICE, str(uid(ALICE)), "weights", "x", "NoNewPrivs:", "1"])
        self.assertEqual(cluster.as_owner(ALICE, "cp", f"{job}:out", "-").stdout, "weights\n")
        # A link that leads outside of the job's directories, and a file that only root may read.
        self.assertNotEqual(cluster.as_owner(ALICE, "cp", f"{job}:shadow", "-", check=False).returncode, 0)
        work = cluster.directory / "node-1/jobs" / job / "work/rank-0000"
        (work / "private").write_text("of root")
        (work / "private").chmod(0o600)
        refused = cluster.as_owner(ALICE, "cp", f"{job}:private", cluster.directory / "copy", check=False)
        self.assertIn("Permission denied", refused.stderr)
        self.assertFalse((cluster.directory / "copy").exists())
        (work / "private").unlink()
        self.assertNotEqual(cluster.as_owner(BOB, "cp", f"{job}:out", "-", check=False).returncode, 0)
        self.assertNotEqual(cluster.as_owner(BOB, "exec", job, "--", "id", check=False).returncode, 0)

        cluster.as_owner(ALICE, "exec", job, "--", "touch", "end")
        self.finish(cluster, job)
        logs = cluster.as_owner(ALICE, "logs", job)
        lines = logs.stdout.splitlines()
        self.assertEqual(lines[0], ALICE)
        self.assertIn(f"{entry.pw_dir} {ALICE} {ALICE}", lines)
        self.assertIn(str(work), lines)
        self.assertIn("again", lines)
        self.assertIn("error", logs.stdout + logs.stderr)
        self.assertIn("NoNewPrivs:\t1", lines)
        self.assertEqual(sum(line.endswith(16 * "0") for line in lines if line.startswith("Cap")), 4)
        descriptors = (work / "descriptors").read_text().split()
        self.assertEqual([fd for fd in descriptors if fd != "255"], ["0", "1", "2"])  # bash reads its script from 255
        self.assertEqual(cluster.owners_of(work), {ALICE})

    def test_reported_error(self):
        cluster = self.cluster_of(nodes=1)
        script = """echo '{"message": "ValueError: no such layer"}' > $TORCHELASTIC_ERROR_FILE; exit 3"""
        job = cluster.submit_as(ALICE, shell_spec("fails", script))
        self.assertIn("no such layer", self.finish(cluster, job, "FAILED")["first_failure"]["message"])
        # A link to a file that the job may not read.
        secret = cluster.directory / "secret.json"
        secret.write_text('{"message": "the secret"}')
        secret.chmod(0o600)
        job = cluster.submit_as(ALICE, shell_spec("links", f"ln -s {secret} $TORCHELASTIC_ERROR_FILE; exit 3"))
        self.assertNotIn("the secret", json.dumps(self.finish(cluster, job, "FAILED")))

    def test_owners_without_suitable_user_are_refused(self):
        cluster = self.cluster_of(nodes=1)
        for owner, text in ((STRANGER, f"has no Unix user '{STRANGER}'"), ("root", "Unix user 'root' is root")):
            job = cluster.submit_as(owner, shell_spec("refused", "id"))
            failure = self.finish(cluster, job, "FAILED")["first_failure"]
            self.assertIn(text, failure["message"])
            self.assertIn(f"node node-1 cannot run ranks of owner '{owner}'", failure["message"])
        # Such jobs do not keep the node from others: it is not taken for a node on which launches fail.
        self.assertNotIn("cool_down", cluster.nodes()[0])
        self.finish(cluster, cluster.submit_as(ALICE, shell_spec("runs", "id")))

    def start_alone(self, cluster, *flags, prefix=()):
        """Runs a worker until it gives up."""
        return subprocess.run([*prefix, str(cluster.programs / "muster-worker"), "--coordinator=127.0.0.1:1",
                               f"--data-dir={cluster.directory}/alone", "--http=127.0.0.1:0", *flags],
                              capture_output=True, text=True, timeout=30, env=cluster.environment())

    def test_worker_refuses_to_start(self):
        cluster = self.cluster_of()
        for user, text in (("no-such-unix-user", "has no user"), ("root", "is root")):
            result = self.start_alone(cluster, f"--job-user={user}")
            self.assertEqual(result.returncode, USAGE, result.stderr)
            self.assertIn("--job-user: ", result.stderr)
            self.assertIn(text, result.stderr)
        result = self.start_alone(cluster, "--job-user={owner}",
                                  prefix=("setpriv", "--reuid", BOB, "--clear-groups", "--regid", "9"))
        self.assertEqual(result.returncode, NOT_ALLOWED, result.stderr)
        self.assertRegex(result.stderr, "start it as root, or with the ambient capabilities.* CAP_SETUID")
        cluster.directory.chmod(0o700)
        result = self.start_alone(cluster, f"--job-user={ALICE}")
        cluster.directory.chmod(0o711)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(f"user {ALICE} cannot enter {cluster.directory},", result.stderr)

    def test_one_user_for_all_jobs(self):
        cluster = self.cluster_of(nodes=1, job_user=ALICE)
        for owner in (BOB, STRANGER):
            job = cluster.submit_as(owner, shell_spec("runs", "id -un"))
            self.finish(cluster, job)
            self.assertEqual(cluster.muster("logs", job).stdout, f"{ALICE}\n")

    def test_stop_kills_processes_of_the_job(self):
        cluster = self.cluster_of(nodes=1)
        script = "trap 'echo stopping; exit 0' TERM; setsid sleep 601 & echo child $!; while :; do sleep 0.1; done"
        job = cluster.submit_as(ALICE, shell_spec("stops", script, grace_period="20s"))
        child = int(wait_until(lambda: re.search(r"child (\d+)\n", cluster.muster("logs", job).stdout), 20, "output")[1])
        self.assertEqual(users_of(child), 4 * [uid(ALICE)])
        self.assertNotEqual(cluster.as_owner(BOB, "cancel", job, check=False).returncode, 0)
        cluster.as_owner(ALICE, "cancel", job)
        self.finish(cluster, job, "CANCELLED")
        self.assertIn("stopping", cluster.muster("logs", job).stdout)
        self.assertFalse(pathlib.Path(f"/proc/{child}").exists())

        # A shim that is lost: the worker finds the processes.
        job = cluster.submit_as(ALICE, shell_spec("loses-shim", "setsid sleep 602 & echo child $!; sleep 603"))
        child = int(wait_until(lambda: re.search(r"child (\d+)\n", cluster.muster("logs", job).stdout), 20, "output")[1])
        os.kill(parent_of(cluster.rank_pid(job)), signal.SIGKILL)
        self.finish(cluster, job, "FAILED")
        wait_until(lambda: not pathlib.Path(f"/proc/{child}").exists(), 20, "the end of the process")

    def test_worker_adopts_and_hands_over(self):
        cluster = self.cluster_of(nodes=1)
        script = "while [ ! -e end ]; do echo step=$((n += 1)) >> $MUSTER_PROGRESS; sleep 0.1; done; id -un"
        job = cluster.submit_as(ALICE, shell_spec("survives", script))
        cluster.wait_for_step(job, 1)
        pid = cluster.rank_pid(job)
        for end in (cluster.workers["node-1"].kill, lambda: cluster.workers["node-1"].signal(signal.SIGUSR2)):
            end()
            cluster.workers["node-1"].process.wait(20)
            cluster.start_worker("node-1")
            cluster.wait_for_nodes(1)
            step = int(cluster.get(job)["progress"]["step"])
            cluster.wait_for_step(job, step + 10)  # the file of progress is followed
        self.assertEqual(cluster.rank_pid(job), pid)
        self.assertEqual(cluster.as_owner(ALICE, "exec", job, "--", "id", "-un").stdout, f"{ALICE}\n")
        cluster.as_owner(ALICE, "exec", job, "--", "touch", "end")
        self.finish(cluster, job)
        self.assertEqual(cluster.get(job)["generation"], 1)

    def test_files_are_placed_and_removed_without_following_links(self):
        """Links of the job lead root neither when it places files nor when it deletes directories."""
        cluster = self.cluster_of(nodes=1)
        victim = cluster.directory / "victim"
        victim.mkdir()
        (victim / "file").write_text("untouched")
        upload = cluster.directory / "upload"
        upload.mkdir()
        (upload / "script.sh").write_text(
            f"if [ $MUSTER_GENERATION = 1 ]; then\n  cd ..; rm -rf rank-0000/upload; ln -s {victim} rank-0000/upload\n"
            f"  ln -s {victim} rank-0000/deep; ln -sf {victim}/file rank-0000/file; exit 1\nfi\n"
            "cat upload/script.sh | head -1; id -un\n")
        job = cluster.as_owner(ALICE, "submit", "--files", "upload", "--restarts", "1", "-o", "name", "--", "bash",
                               "upload/script.sh", cwd=cluster.directory).stdout.strip()
        self.finish(cluster, job)
        self.assertIn(f"\n{ALICE}\n", cluster.muster("logs", job).stdout)
        self.assertEqual([path.name for path in victim.iterdir()], ["file"])
        work = cluster.directory / "node-1/jobs" / job
        self.assertTrue((work / "work/rank-0000/deep").is_symlink())
        cluster.as_owner(ALICE, "rm", job)
        wait_until(lambda: not work.exists(), 20, "the job's directories are deleted")
        self.assertEqual((victim / "file").read_text(), "untouched")

    def test_logs_and_directories_expire(self):
        cluster = self.cluster_of()
        cluster.worker_flags.append("--keep-logs=2s")
        cluster.start_worker("node-1")
        cluster.wait_for_nodes(1)
        job = cluster.submit_as(ALICE, shell_spec("expires", "mkdir -m 700 a; echo x > a/b"))
        self.finish(cluster, job)
        wait_until(lambda: not (cluster.directory / "node-1/jobs" / job).exists(), 30, "retention")

    def test_inspection_of_a_hang(self):
        cluster = self.cluster_of(nodes=1)
        # The py-spy in the rank's PATH is the rank's.
        script = ("mkdir bin; printf '#!/bin/sh\\nid -un > $0.user; exit 1\\n' > bin/py-spy; chmod +x bin/py-spy; "
                  "export PATH=$PWD/bin:$PATH; echo started; exec sleep 600")
        job = cluster.submit_as(ALICE, shell_spec("hangs", script, hang_timeout="4s"))
        hang = wait_until(lambda: cluster.describe(job).get("hang"), 60, "the hang")
        self.assertIn("sleep", json.dumps(hang))
        work = cluster.directory / "node-1/jobs" / job / "work/rank-0000"
        self.assertEqual((work / "bin/py-spy.user").read_text(), f"{ALICE}\n")
        self.assertIn("main thread", json.dumps(hang))  # read by ptrace
        cluster.muster("cancel", job, "--force")

    def test_training_with_checkpoints(self):
        cluster = self.cluster_of(nodes=2, slots=2)
        for nodes in (1, 2):
            folder = cluster.folder_for(ALICE, f"checkpoints-{nodes}")
            spec = training_spec(f"trains-{nodes}", max_steps=1_000_000, dataset={
                "name": "fashion_mnist", "path": str(cluster.dataset)}, checkpoint={"dir": str(folder), "every": "never"},
                resources={"nodes": nodes, "ranks_per_node": 2 // nodes}, restart={"max": 2})
            job = cluster.submit_as(ALICE, spec)
            cluster.wait_for_step(job, 5)
            self.assertEqual({tuple(users_of(pid)) for pid in cluster.rank_pids()}, {4 * (uid(ALICE),)})
            cluster.as_owner(ALICE, "checkpoint", job)
            step = int(cluster.get(job)["checkpoint"]["step"])
            self.assertEqual(cluster.owners_of(folder), {ALICE})
            for pid in cluster.rank_pids():
                os.kill(pid, signal.SIGKILL)
            resumed = wait_until(lambda: int(cluster.get(job).get("checkpoint", {}).get("resumed_step", 0)), 60, "restart")
            self.assertGreaterEqual(resumed, step)
            # One rank is lost: the other leaves its state in memory.
            generation = int(cluster.get(job)["generation"])
            cluster.wait_for_step(job, resumed + 5)
            os.kill(cluster.rank_pid(job, 1), signal.SIGKILL)
            wait_until(lambda: int(cluster.get(job)["generation"]) > generation, 60, "the next generation")
            wait_until(lambda: "in memory" in cluster.muster("describe", job, "--events").stdout, 60, "the state in memory")
            cluster.as_owner(ALICE, "cancel", job, "--force")
            self.finish(cluster, job, "CANCELLED")

    def test_checkpoints_in_the_data_directory(self):
        cluster = self.cluster_of(nodes=1)
        spec = training_spec("trains", max_steps=20, dataset={"name": "fashion_mnist", "path": str(cluster.dataset)})
        job = cluster.submit_as(ALICE, spec)
        self.finish(cluster, job)
        folder = cluster.directory / "node-1/jobs" / job / "checkpoint"
        self.assertEqual(cluster.owners_of(folder), {ALICE})

    def test_hosted_store(self):
        cluster = self.cluster_of(nodes=1)
        program = ("import torch.distributed as dist; dist.init_process_group('gloo'); import torch; "
                   "ones = torch.ones(1); dist.all_reduce(ones); print('sum', int(ones))")
        spec = command_spec("stores", "/usr/bin/python3", "-c", program, ranks=2, env={"MUSTER_HOSTED_STORE": "1"})
        job = cluster.submit_as(ALICE, spec)

        def store():
            return [users_of(pid) for pid, command in cluster.processes() if "c10d-store" in command.split()[0]]
        self.assertEqual(wait_until(store, 30, "the store"), [4 * [uid(ALICE)]])
        self.finish(cluster, job)
        self.assertIn("sum 2", cluster.muster("logs", job).stdout)

    def test_worker_with_capabilities(self):
        """A worker that is not root, with what the drop-in for systemd grants: its ranks keep none of its capabilities."""
        cluster = self.cluster_of()
        cluster.join("node-1")
        folder = cluster.directory / "node-1"
        for path in (folder, *folder.rglob("*"), cluster.config("node-1")):
            os.chown(path, uid("proxy"), -1)
        capabilities = ",".join(f"+{name}" for name in
                                ("chown", "dac_override", "fowner", "kill", "setgid", "setuid", "sys_ptrace"))
        cluster.start_worker("node-1", prefix=(
            "setpriv", "--reuid", "proxy", "--regid", "13", "--clear-groups", "--inh-caps", capabilities,
            "--ambient-caps", capabilities))
        cluster.wait_for_nodes(1)
        script = "grep -E '^(Uid|Cap(Eff|Prm|Inh|Amb))' /proc/self/status; echo data > file; exec sleep 600"
        job = cluster.submit_as(ALICE, shell_spec("runs", script))
        self.assertEqual(cluster.wait_for_state(job, "RUNNING")["state"], "RUNNING")
        self.assertEqual(users_of(parent_of(cluster.rank_pid(job))), 4 * [uid("proxy")])
        self.assertEqual(cluster.as_owner(ALICE, "exec", job, "--", "id", "-un").stdout, f"{ALICE}\n")
        self.assertEqual(wait_until(lambda: cluster.as_owner(ALICE, "cp", f"{job}:file", "-", check=False).stdout, 10,
                                    "the file"), "data\n")
        lines = cluster.muster("logs", job).stdout.splitlines()
        self.assertEqual(lines[0].split()[1:], 4 * [str(uid(ALICE))])
        self.assertEqual(sum(line.endswith(16 * "0") for line in lines), 4, lines)
        cluster.as_owner(ALICE, "cancel", job, "--force")
        self.finish(cluster, job, "CANCELLED")
        cluster.as_owner(ALICE, "rm", job)
        wait_until(lambda: not (folder / "jobs" / job).exists(), 20, "the job's directories are deleted")
