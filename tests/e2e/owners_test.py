"""Owners of jobs: what another user may see and do, and secrets."""

import hashlib
import json
import subprocess
import unittest

from tests.support.cluster import shell_spec, wait_until
from tests.support.users import TOKENS, UsersCluster

NOT_ALLOWED = 77
VALUE = "hunter2-0123456789"
# Prints the digest of the secret, so that no log contains the value.
PRINT_DIGEST = 'printf %s "$TOKEN" | sha256sum'
DIGEST = hashlib.sha256(VALUE.encode()).hexdigest()


class OwnersTest(unittest.TestCase):
    def submit(self, cluster, user, spec):
        result = cluster.as_user(user, "submit", cluster.write_spec(spec), "-o", "name")
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip()

    def refused(self, cluster, job, *args):
        result = cluster.as_user("bob", *args)
        self.assertEqual(result.returncode, NOT_ALLOWED, f"{args}: {result.stdout}{result.stderr}")
        self.assertIn(f"job {job} belongs to alice, and bob is neither its owner nor an admin", result.stderr)

    def allowed(self, cluster, *args, user="alice"):
        result = cluster.as_user(user, *args)
        self.assertEqual(result.returncode, 0, f"{args}: {result.stdout}{result.stderr}")
        return result.stdout

    def test_only_owner_and_admin_may_use_a_job(self):
        with UsersCluster(nodes=1, slots=1) as cluster:
            job = self.submit(cluster, "alice", shell_spec("runs", "echo out; exec sleep 600"))
            cluster.wait_for_state(job, "RUNNING")
            for verb in (("cancel", job), ("requeue", job), ("hold", job), ("release", job), ("checkpoint", job),
                         ("rm", job), ("logs", job), ("exec", job, "--", "true"), ("cp", f"{job}:.", "-")):
                self.refused(cluster, job, *verb)
            self.assertEqual(cluster.get(job)["state"], "RUNNING")
            wait_until(lambda: "out" in self.allowed(cluster, "logs", job), 10, "the log")
            self.assertIn("out", cluster.muster("logs", job).stdout)  # the local token is an admin

            queued = self.submit(cluster, "alice", shell_spec("waits", "true"))
            self.refused(cluster, queued, "hold", queued)
            self.allowed(cluster, "hold", queued)
            self.refused(cluster, queued, "release", queued)
            cluster.muster("release", queued)
            self.allowed(cluster, "cancel", queued)
            self.allowed(cluster, "cancel", job, "--force")
            self.assertEqual(cluster.wait(job, check=False)["message"], "cancelled by alice")
            self.refused(cluster, job, "logs", job)

    def test_environment_and_ends_of_logs_are_hidden_from_others(self):
        with UsersCluster(nodes=1, slots=1) as cluster:
            spec = shell_spec("fails", "echo private-$((40 + 2)) >&2; exit 3")
            spec["env"] = {"KEY": VALUE}
            job = self.submit(cluster, "alice", spec)
            cluster.wait(job, check=False)
            for user in ("alice", "bob"):
                for verb in (("get", job, "-o", "json"), ("describe", job, "--ranks", "-o", "json"),
                             ("list", "-a", "-o", "json"), ("describe", job, "--ranks", "--events"),
                             ("wait", job, "-o", "json"), ("why", job)):
                    result = cluster.as_user(user, *verb)
                    if user == "bob":
                        self.assertNotIn(VALUE, result.stdout + result.stderr, verb)
                        self.assertNotIn("private-42", result.stdout + result.stderr, verb)
            shown = json.loads(self.allowed(cluster, "get", job, "-o", "json"))
            self.assertEqual(shown["spec"]["env"]["KEY"], VALUE)
            hidden = json.loads(self.allowed(cluster, "get", job, "-o", "json", user="bob"))
            self.assertNotIn("env", hidden["spec"])
            self.assertNotIn("command", hidden["spec"])
            self.assertTrue(hidden["private_hidden"])
            self.assertEqual(hidden["first_failure"]["exit"]["exit_code"], 3)
            self.assertEqual(hidden["message"], "rank 0 on node-1 exited with code 3")
            self.assertIn("private-42", self.allowed(cluster, "describe", job))
            rerun = cluster.as_user("bob", "rerun", job)
            self.assertEqual(rerun.returncode, NOT_ALLOWED, rerun.stderr)
            self.assertIn(f"job {job} belongs to alice, and is not shared", rerun.stderr)

    def test_shared_job_is_rerun_with_its_files(self):
        with UsersCluster(nodes=1, slots=1) as cluster:
            (cluster.directory / "private.txt").write_text("text of alice")
            spec = dict(shell_spec("reads", "cat private.txt; echo $KEY"), files=["private.txt"], env={"KEY": VALUE})
            job = self.submit(cluster, "alice", spec)
            cluster.wait(job)
            rerun = ("rerun", job, "-o", "name")
            self.assertEqual(cluster.as_user("bob", *rerun).returncode, NOT_ALLOWED)
            self.assertEqual(cluster.as_user("bob", "admin", "share", job).returncode, NOT_ALLOWED)
            cluster.muster("admin", "share", job)
            again = self.allowed(cluster, *rerun, user="bob").strip()
            cluster.wait(again)
            # What bob's job prints is bob's, without the environment of alice.
            self.assertEqual(self.allowed(cluster, "logs", again, user="bob").strip(), "text of alice")
            self.assertEqual(cluster.as_user("bob", "logs", job).returncode, NOT_ALLOWED)
            cluster.muster("admin", "share", job, "--undo")
            self.assertEqual(cluster.as_user("bob", *rerun).returncode, NOT_ALLOWED)

    def test_priority_class_is_bounded_by_role(self):
        with UsersCluster() as cluster:
            spec = dict(shell_spec("urgent", "true"), priority_class="high")
            path = cluster.write_spec(spec)
            for verb in (("submit", path), ("submit", path, "--dry-run")):
                refused = cluster.as_user("alice", *verb)
                self.assertEqual(refused.returncode, NOT_ALLOWED, refused.stderr)
                self.assertIn("priority_class: high is above normal, the highest class of role submit", refused.stderr)
            cluster.muster("submit", path)

    def test_idempotency_keys_belong_to_owners(self):
        with UsersCluster() as cluster:
            path = cluster.write_spec(shell_spec("same", "true"))
            jobs = [self.allowed(cluster, "submit", path, "-o", "name", "--idempotency-key", "k", user=user)
                    for user in ("alice", "bob", "alice", "bob")]
            self.assertEqual(jobs[0], jobs[2])
            self.assertEqual(jobs[1], jobs[3])
            self.assertNotEqual(jobs[0], jobs[1])


class SecretsTest(unittest.TestCase):
    def files_with_value(self, cluster, allowed=()):
        """All files of the cluster (data directories, logs of daemons and of ranks) with the value."""
        found = []
        for path in cluster.directory.rglob("*"):
            if path.is_file() and path not in allowed and VALUE.encode() in path.read_bytes():
                found.append(str(path.relative_to(cluster.directory)))
        return found

    def spec(self, name, script):
        return dict(shell_spec(name, script), secret_env={"TOKEN": "hf-token"})

    def run_job(self, cluster, user, spec):
        job = cluster.as_user(user, "submit", cluster.write_spec(spec), "-o", "name").stdout.strip()
        return job, cluster.wait(job, check=False)

    def shown(self, cluster, job):
        """What all views of the job show to its owner and to an admin."""
        text = ""
        for verb in (("get", job, "-o", "json"), ("get", job, "-o", "yaml"), ("logs", job),
                     ("describe", job, "--ranks", "--events"), ("describe", job, "-o", "json"),
                     ("list", "-a", "-o", "json"), ("list", "-a", "-o", "wide")):
            for result in (cluster.as_user("alice", *verb), cluster.muster(*verb)):
                text += result.stdout + result.stderr
        return text

    def test_secrets_of_the_node(self):
        with UsersCluster() as cluster:
            secrets = cluster.directory / "secrets"
            (secrets / "alice").mkdir(parents=True)
            secret = secrets / "alice" / "hf-token"
            secret.write_text(VALUE + "\n")
            secret.chmod(0o600)
            cluster.start_worker("node-1", 1, flags=[f"--secrets-dir={secrets}"])
            cluster.wait_for_nodes(1)

            job = cluster.as_user("alice", "submit", cluster.write_spec(
                self.spec("mine", f"{PRINT_DIGEST}; exec sleep 600")), "-o", "name").stdout.strip()
            cluster.wait_for_state(job, "RUNNING")
            wait_until(lambda: DIGEST in cluster.as_user("alice", "logs", job).stdout, 10, "the digest")
            beside = cluster.as_user("alice", "exec", job, "--", "sh", "-c", "echo ${TOKEN-unset}")
            self.assertEqual(beside.stdout, "unset\n")
            self.assertEqual(self.files_with_value(cluster, allowed=[secret]), [])
            # A new worker adopts the rank.
            cluster.workers["node-1"].kill()
            cluster.start_worker("node-1", 1, flags=[f"--secrets-dir={secrets}"])
            cluster.wait_for_nodes(1)
            self.assertNotIn(VALUE, self.shown(cluster, job))
            cluster.as_user("alice", "cancel", job, "--force")
            cluster.wait(job, check=False)
            self.assertEqual(self.files_with_value(cluster, allowed=[secret]), [])

            _, failed = self.run_job(cluster, "bob", self.spec("others", PRINT_DIGEST))
            self.assertEqual((failed["state"], failed["reason"]), ("FAILED", "LaunchFailed"))
            self.assertIn(f"the coordinator has no such secret of bob, and this node has no file {secrets}/bob/hf-token "
                          f"or {secrets}/hf-token", failed["message"])
            self.assertEqual(failed.get("restarts", 0), 0)

            secret.chmod(0o644)
            _, failed = self.run_job(cluster, "alice", self.spec("open", PRINT_DIGEST))
            self.assertIn(f"chmod 600 {secret}", failed["message"])

    def test_secrets_of_the_coordinator(self):
        with UsersCluster(nodes=1, slots=1) as cluster:
            if cluster.muster("help", "secret", check=False).returncode != 0:
                self.skipTest("this build of muster has no verb secret")
            for user, name, value in (("alice", "hf-token", VALUE), ("bob", "other", "x")):
                process = subprocess.run(cluster.command("secret", "set", name), input=value, text=True, timeout=30,
                                         env=dict(cluster.client_env(), MUSTER_TOKEN=TOKENS[user]),
                                         capture_output=True)
                self.assertEqual(process.returncode, 0, process.stderr)
            listed = cluster.as_user("alice", "secret", "list")
            self.assertIn("hf-token", listed.stdout)
            self.assertNotIn("other", listed.stdout)
            cluster.coordinator.kill()
            cluster.start_coordinator()
            cluster.wait_for_nodes(1)
            job, finished = self.run_job(cluster, "alice", self.spec("mine", PRINT_DIGEST))
            self.assertEqual(finished["state"], "SUCCEEDED")
            shown = self.shown(cluster, job)
            self.assertIn(DIGEST, shown)
            self.assertNotIn(VALUE, shown)
            # Only the store has it.
            store = cluster.directory / "coordinator"
            self.assertEqual(self.files_with_value(cluster, allowed=list(store.glob("coordinator.sqlite*"))), [])
            _, failed = self.run_job(cluster, "bob", self.spec("others", PRINT_DIGEST))
            self.assertEqual((failed["state"], failed["reason"]), ("FAILED", "LaunchFailed"))
            self.assertIn("secret hf-token (variable TOKEN) is missing", failed["message"])


if __name__ == "__main__":
    unittest.main()
