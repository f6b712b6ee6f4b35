"""Commands that queue, follow, explain and end jobs, from a user's perspective."""

import json
import os
import signal
import subprocess
import time
import unittest

from tests.support.cluster import Cluster, command_spec, shell_spec, training_spec, wait_until
from tests.support.terminal import Terminal

SLEEP = "echo started; exec sleep 600"


class CliJobsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=1, slots=2))

    def test_runs_command_without_spec_file(self):
        def run(*args):
            return self.cluster.muster("run", "--name", "greet", "--ranks-per-node", "2", *args, "--",
                                       "/bin/sh", "-c", "echo hello $RANK; echo careful >&2; echo end")
        result = run()
        for rank in range(2):
            self.assertEqual([line for line in result.stdout.splitlines() if line.startswith(f"{rank}| ")],
                             [f"{rank}| hello {rank}", f"{rank}| careful", f"{rank}| end"])
        self.assertNotIn("careful", result.stderr)
        self.assertIn("succeeded", result.stderr)
        result = run("--set", "output=separate")
        self.assertEqual(sorted(result.stdout.splitlines()), ["0| end", "0| hello 0", "1| end", "1| hello 1"])
        self.assertIn("0| careful", result.stderr)

    def test_secret_that_is_typed_is_not_shown(self):
        terminal = Terminal(self.cluster.command("secret", "set", "wandb"), self.cluster.client_env())
        terminal.wait_for("enter the value, which is not shown:")
        terminal.type("hunter2\n")
        self.assertEqual(terminal.exit_status(), 0)
        self.assertIn("wandb is set", terminal.shown)
        self.assertNotIn("hunter2", terminal.shown)
        spec = shell_spec("login", 'test "$TOKEN" = hunter2')
        spec["env"] = {"TOKEN": {"secret": "wandb"}}
        job = self.cluster.submit(spec)
        self.assertEqual(self.cluster.wait(job)["state"], "SUCCEEDED")
        terminal = Terminal(self.cluster.command("secret", "set", "wandb"), self.cluster.client_env())
        terminal.wait_for("enter the value, which is not shown:")
        terminal.type("one\ntwo\n")
        self.assertNotEqual(terminal.exit_status(), 0)
        self.assertIn("the value has more than one line", terminal.shown)

    def test_set_and_flags_override_spec_file(self):
        spec = self.cluster.write_spec(training_spec("changed"))
        text = self.cluster.muster("submit", spec, "--dry-run", "-o", "json", "--set", "train.max_steps=7",
                                   "--set", "train.model={name: mlp, hidden: [8, 9]}", "--set", "grace_period=1m",
                                   "--set", "train.strategy.bucket_bytes=2MiB", "--name", "other",
                                   "--priority", "-3").stdout
        spec = json.loads(text)
        self.assertEqual(spec["train"]["max_steps"], 7)
        self.assertEqual(spec["train"]["model"]["hidden"], [8, 9])
        self.assertEqual(spec["train"]["strategy"]["bucket_bytes"], 2 << 20)
        self.assertEqual(spec["grace_period"], "60s")
        self.assertEqual((spec["name"], spec["priority"]), ("other", -3))
        self.assertEqual(spec["failure_timeout"], "30s")  # defaults are filled in
        names = self.cluster.muster("list", "-a", "-o", "name").stdout
        self.assertNotIn("other", names)  # nothing was queued
        # The file may follow the options.
        file = self.cluster.write_spec(training_spec("changed"))
        for option in (["--set", "train.seed=2"], ["-e", "A=1"], ["--env-file", os.devnull]):
            self.assertEqual(self.cluster.muster("submit", "--dry-run", "-o", "name", *option, file).stdout, "changed\n")
        result = self.cluster.muster("submit", "--files", "conf", file, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("FILE before --files", result.stderr)

    def test_flags_of_torchrun_and_slurm(self):
        spec = json.loads(self.cluster.muster("submit", "--dry-run", "-o", "json", "--restarts", "2",
                                              "--time", "1-00:00:00", "--nproc-per-node", "3", "--nnodes", "2",
                                              "--set", "resources.memory=8G", "--", "/bin/true").stdout)
        self.assertEqual((spec["restart"], spec["time_limit"]), ({"max": 2}, "86400s"))
        self.assertEqual(spec["resources"]["nodes"], {"min": 2, "max": 2})
        self.assertEqual(spec["resources"]["memory"], 8 << 30)
        self.assertEqual(spec["resources"]["ranks_per_node"], 3)
        result = self.cluster.muster("submit", "--dry-run", "--time", "2x", "--", "/bin/true", check=False)
        self.assertEqual(result.returncode, 78)
        self.assertIn("time_limit", result.stderr)

    def test_idempotency_key(self):
        spec = self.cluster.write_spec(command_spec("once", "/bin/true"))
        first, second = (self.cluster.muster("submit", spec, "-o", "name", "--idempotency-key", "k1")
                         for _ in range(2))
        self.assertEqual(first.stdout, second.stdout)
        self.assertIn("was already submitted", second.stderr)

    def test_force_cancels_without_grace_period(self):
        job = self.cluster.submit(shell_spec("stubborn", "trap '' TERM; echo up; while :; do sleep 0.1; done"))
        wait_until(lambda: "up" in self.cluster.muster("logs", job).stdout, 20, "the rank ignores SIGTERM")
        began = time.monotonic()
        self.cluster.muster("cancel", job, "--force")
        self.assertEqual(self.cluster.wait(job, check=False)["state"], "CANCELLED")
        self.assertLess(time.monotonic() - began, 10)  # the job's own grace period is 30 s

    def test_logs_of_node_with_timestamps(self):
        job = self.cluster.submit(shell_spec("timed", "echo a $RANK; echo b", ranks=2))
        self.cluster.wait(job)
        lines = self.cluster.muster("logs", job, "-f", "--node", "node-1", "--rank", "1", "--timestamps",
                                    "--tail", "1").stdout.splitlines()
        self.assertEqual(len(lines), 1)
        self.assertRegex(lines[0], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z b$")
        refused = self.cluster.muster("logs", job, "--node", "node-7", check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("its nodes are node-1", refused.stderr)

    def test_why(self):
        runs = self.cluster.submit(shell_spec("runs", SLEEP, ranks=2))
        self.cluster.wait_for_state(runs, "RUNNING")
        queued = self.cluster.submit(shell_spec("queued", SLEEP))
        behind = self.cluster.submit(shell_spec("behind", SLEEP, time_limit="1h"))
        text = self.cluster.muster("why", behind).stdout
        self.assertIn("position 2", text)
        self.assertIn(queued, text)
        self.assertRegex(text, rf"node-1: 0 of 2 slots free.*{runs}")
        answer = json.loads(self.cluster.muster("why", behind, "-o", "json").stdout)
        self.assertEqual((answer["queue_position"], answer["ahead"]), (2, [queued]))

        def slowest_of_reported():
            answer = json.loads(self.cluster.muster("why", runs, "-o", "json").stdout)
            return answer if "slowest" in answer else None
        answer = wait_until(slowest_of_reported, 20, "the ranks' first report")
        self.assertEqual(answer["slowest"]["judged_by"], "silence")
        self.assertIn("Oldest report: rank", answer["answer"])
        self.cluster.muster("cancel", behind, queued, runs, "--force")
        self.cluster.wait(runs, check=False)
        failed = self.cluster.submit(shell_spec(
            "fails", "if [ $RANK = 1 ]; then echo no luck >&2; exit 9; fi; exec sleep 600", ranks=2))
        self.cluster.wait(failed, check=False)
        text = self.cluster.muster("why", failed).stdout
        self.assertIn("exit status 9", text)
        self.assertIn("    no luck\n", text)
        self.assertIn("1 other rank was stopped because of it", text)

    def test_interrupt_on_terminal_asks(self):
        command = self.cluster.command("run", "--", "/bin/sh", "-c", SLEEP)
        for answer, state in (("d\n", "RUNNING"), ("c\n", "CANCELLED"), ("\x03", "CANCELLED")):
            with self.subTest(answer=answer):
                terminal = Terminal(command, self.cluster.client_env())
                terminal.wait_for("started")
                terminal.type("\x03")
                terminal.wait_for("Enter continues")
                terminal.type(answer)
                self.assertEqual(terminal.exit_status(), 130)
                job = self.cluster.muster("list", "-a", "-o", "name").stdout.split()[0]
                if state == "RUNNING":
                    self.assertIn(f"muster wait {job}", terminal.shown)
                    self.cluster.wait_for_state(job, state)
                    self.cluster.muster("cancel", job, "--force")
                self.assertEqual(self.cluster.wait(job, check=False)["state"], "CANCELLED")

    def test_signals_without_terminal(self):
        for number, state in ((signal.SIGINT, "CANCELLED"), (signal.SIGTERM, "RUNNING"), (signal.SIGHUP, "RUNNING")):
            with self.subTest(signal=number):
                run = self.cluster.popen("run", "--", "/bin/sh", "-c", SLEEP)
                self.assertEqual(run.stdout.readline(), "started\n")
                job = self.cluster.muster("list", "-o", "name").stdout.strip()
                run.send_signal(number)
                _, err = run.communicate(timeout=30)
                self.assertEqual(run.returncode, 130, err)
                self.assertEqual(self.cluster.get(job)["state"], state)
                self.cluster.muster("cancel", job, "--force")
                self.cluster.wait(job, check=False)

    def test_exit_statuses(self):
        """Exit statuses that other tests do not cover."""
        cluster = self.cluster
        good = cluster.write_spec(shell_spec("good", "true"))
        for status, words in ((0, ["run", good]),
                              (1, ["get", "nobody"]),
                              (2, ["cancel"]),
                              (2, ["lst"]),
                              (66, ["run", "/no/such/spec"]),
                              (69, ["list", "--coordinator", "127.0.0.1:1"]),
                              (73, ["local", good, "--keep", "/proc/no"]),
                              (77, ["list", "--token-file", self.wrong_token()]),
                              (78, ["run", good, "--set", "resources.nodes=0"]),
                              (124, ["run", good, "--set", "time_limit=1s", "--", "/bin/sleep", "60"])):
            result = cluster.muster(*words, check=False)
            self.assertEqual(result.returncode, status, (words, result.stderr))
            if status not in (0, 1, 124):
                self.assertLessEqual(len(result.stderr.splitlines()), 2, result.stderr)
        job = cluster.submit(shell_spec("long", SLEEP))
        self.assertEqual(cluster.muster("wait", job, "--timeout", "100ms", check=False).returncode, 124)
        cluster.muster("cancel", job, "--force")
        cluster.wait(job, check=False)

    def test_reports_unresponsive_coordinator(self):
        self.cluster.coordinator.signal(signal.SIGSTOP)
        try:
            result = self.cluster.muster("list", check=False)
        finally:
            self.cluster.coordinator.signal(signal.SIGCONT)
        self.assertEqual(result.returncode, 75, result.stderr)
        self.assertIn("did not answer within", result.stderr)

    def wrong_token(self):
        path = self.cluster.directory / "wrong-token"
        path.write_text("0" * 64 + "\n")
        path.chmod(0o600)
        return path

    def test_unknown_word_suggests_nearest(self):
        for words, text in ((["lst"], "did you mean 'list'"), (["node", "lst"], "did you mean 'list'"),
                            (["cancel", "x", "--grce", "1s"], "did you mean --grace?"),
                            (["list", "-o", "jsn"], "not one of table, wide, json"),
                            (["kill", "x"], "did you mean 'cancel'?"), (["ps"], "did you mean 'list'?"),
                            (["status"], "did you mean 'describe'?"), (["help", "kill"], "did you mean 'cancel'?"),
                            (["drain"], "did you mean 'node drain'?"),
                            (["spec", "explain", "train.epoch"], "did you mean 'epochs'"),
                            (["spec", "explain", "lr"], "did you mean 'train.optimizer.learning_rate'?")):
            result = self.cluster.muster(*words, check=False)
            self.assertEqual(result.returncode, 2)
            self.assertIn(text, result.stderr)

    def test_suggests_nothing_that_is_far(self):
        result = self.cluster.muster("frobnicate", check=False)
        self.assertNotIn("did you mean", result.stderr)

    def test_several_jobs(self):
        jobs = [self.cluster.submit(shell_spec(name, script, restart={"max": 0}))
                for name, script in (("good", "true"), ("seven", "exit 7"), ("three", "exit 3"))]
        result = self.cluster.muster("wait", *jobs, check=False)
        self.assertEqual(result.returncode, 7, result.stderr)
        self.assertEqual(result.stdout.splitlines(),
                         [f"{job} {state}" for job, state in zip(jobs, ("succeeded", "failed", "failed"))])
        result = self.cluster.muster("wait", jobs[2], jobs[1], "-o", "json", check=False)
        self.assertEqual(result.returncode, 3)
        self.assertEqual([job["job_id"] for job in json.loads(result.stdout)], [jobs[2], jobs[1]])
        self.assertEqual(self.cluster.muster("get", *jobs, "-o", "name").stdout.split(), jobs)
        self.assertEqual(len(self.cluster.muster("get", *jobs).stdout.splitlines()), 4)
        result = self.cluster.muster("describe", jobs[0], "nobody", jobs[1], check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no job nobody", result.stderr)
        for job in jobs[:2]:
            self.assertRegex(result.stdout, rf"(?m)^Job: +{job}$")

    def test_exact_name_wins_over_prefix(self):
        jobs = [self.cluster.submit(shell_spec(name, "true")) for name in ("match", "match-2")]
        self.cluster.muster("wait", *jobs)
        self.assertEqual(self.cluster.muster("get", "match", "-o", "name").stdout.strip(), jobs[0])
        result = self.cluster.muster("get", "matc", check=False)
        self.assertEqual(result.returncode, 2)
        for job in jobs:
            self.assertIn(job, result.stderr)

    def test_failure_is_shown_once(self):
        script = "echo unlucky-mark >&2; exit 5"
        run = self.cluster.muster("run", "--set", "restart.max=0", "--", "/bin/sh", "-c", script, check=False)
        self.assertEqual((run.stdout + run.stderr).count("unlucky-mark"), 1, run.stderr)
        job = self.cluster.muster("list", "-a", "-o", "name").stdout.split()[0]
        no_data = training_spec("no-data", dataset={"name": "fashion_mnist", "path": "/no/such-data"})
        run = self.cluster.muster("run", self.cluster.write_spec(no_data), check=False)
        self.assertEqual(run.stderr.count("neither /no/such-data"), 1, run.stderr)

        def assert_once():
            text = self.cluster.muster("describe", job, "--events").stdout
            self.assertEqual(text.count("exited with code 5"), 1, text)
            self.assertEqual(text.split("AGE")[0].count("unlucky-mark"), 2, text)  # in the command and the output
        assert_once()
        self.cluster.coordinator.stop()
        self.cluster.start_coordinator()
        self.cluster.wait_for_nodes(1)
        assert_once()

    def test_job_is_named_after_its_script(self):
        spec = self.cluster.muster("submit", "--dry-run", "-o", "name", "--", "python3", "-u", "src/train.py").stdout
        self.assertEqual(spec, "train\n")

    def test_description_shows_command_and_names_of_env(self):
        job = self.cluster.submit(dict(command_spec("shown", "/bin/echo", "two words"), env={"SECRET": "hidden"},
                                       workdir="/tmp"))
        self.cluster.wait(job)
        text = self.cluster.muster("describe", job).stdout
        for line in ("Command:       /bin/echo 'two words'", "Env:           SECRET", "Workdir:       /tmp"):
            self.assertIn(line + "\n", text)
        self.assertNotIn("hidden", text)
        self.assertRegex(text, r"Duration: +\d+s\n")

    def test_all_spec_errors_at_once(self):
        path = self.cluster.directory / "wrong.yaml"
        path.write_text("command: [x]\nprio: 3\npriority: 5000\nresources: {nodes: two}\n")
        result = self.cluster.muster("spec", "validate", path, check=False)
        self.assertEqual(result.returncode, 78)
        self.assertEqual(len(result.stderr.splitlines()), 3, result.stderr)
        self.assertIn("unknown field 'prio' in the spec; did you mean 'priority'?", result.stderr)
        self.assertIn("priority: must be from -1000 to 1000, not 5000", result.stderr)
        self.assertIn("resources.nodes: expected an integer", result.stderr)

    def test_ids_are_strings_in_json(self):
        node = json.loads(self.cluster.muster("node", "list", "-o", "json").stdout)[0]
        self.assertRegex(node["incarnation"], r"^[0-9a-f]{16}$")
        self.assertIn(f"Incarnation: {node['incarnation']}\n",
                      self.cluster.muster("node", "describe", "node-1").stdout)

    def test_cancelled_job_exits_with_1(self):
        run = self.cluster.popen("run", "--", "/bin/sh", "-c", SLEEP)
        self.assertEqual(run.stdout.readline(), "started\n")
        job = self.cluster.muster("list", "-o", "name").stdout.split()[0]
        self.cluster.muster("cancel", job, "--force")
        _, err = run.communicate(timeout=30)
        self.assertEqual(run.returncode, 1, err)
        self.assertIn("cancelled", err)
        self.assertEqual(self.cluster.muster("wait", job, check=False).returncode, 1)

    def test_configuration_file(self):
        """Flags override the environment, which overrides the file, which overrides defaults."""
        home = self.cluster.directory / "home"
        (home / "muster").mkdir(parents=True)
        (home / "muster" / "config").write_text(f"# mine\ncoordinator = {self.cluster.address}\noutput=json\n")
        env = dict(self.cluster.environment(), XDG_CONFIG_HOME=str(home))
        env.pop("MUSTER_COORDINATOR", None)

        def run(*words, **variables):
            return subprocess.run(self.cluster.command(*words), env=dict(env, **variables), capture_output=True,
                                  text=True)
        self.assertEqual(json.loads(run("node", "list").stdout)[0]["name"], "node-1")
        self.assertIn("HEARTBEAT", run("node", "list", MUSTER_OUTPUT="table").stdout)
        self.assertEqual(run("node", "list", "-o", "name", MUSTER_OUTPUT="table").stdout, "node-1\n")
        self.assertEqual(run("node", "list", MUSTER_COORDINATOR="127.0.0.1:1").returncode, 69)
        other = home / "other"
        other.write_text("cordinator=x\n")
        wrong = run("--config", str(other), "list")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("other:1: 'cordinator' is not an option; did you mean 'coordinator'?", wrong.stderr)
        self.assertEqual(run("--config", "/no/such/file", "list").returncode, 66)
        self.assertEqual(run("--config", "/no/such/file", "list", "--help").returncode, 0)


if __name__ == "__main__":
    unittest.main()
