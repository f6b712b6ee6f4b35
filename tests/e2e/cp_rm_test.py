"""`muster cp`, `rm`, `rerun` and `node remove`."""

import json
import unittest
import urllib.request

from tests.support.cluster import Cluster, shell_spec, training_spec, wait_until
from tests.support.users import UsersCluster


def metrics(cluster):
    with urllib.request.urlopen(f"http://{cluster.http}/metrics", timeout=10) as page:
        return page.read().decode()

WRITE = ("mkdir -p out/deep; printf %s $RANK-weights > out/model.pt; ln -s model.pt out/latest; "
         "printf x > out/deep/x; head -c 3000000 /dev/urandom > out/large; ln -s /etc/hostname escape")


class CopyTest(unittest.TestCase):
    def copy(self, cluster, *args, **kwargs):
        return cluster.muster("cp", *args, check=False, **kwargs)

    def test_copies_files_and_folders_of_finished_and_running_jobs(self):
        with Cluster(nodes=1, slots=3) as cluster:
            job = cluster.submit(shell_spec("writes", WRITE, ranks=2))
            self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
            work = cluster.directory / "node-1" / "jobs" / job / "work" / "rank-0001"
            here = cluster.directory / "here"
            here.mkdir()
            result = self.copy(cluster, f"{job}:out/model.pt", here, "--rank", "1")
            self.assertEqual((result.returncode, result.stdout), (0, f"{here}/model.pt\n"), result.stderr)
            self.assertEqual((here / "model.pt").read_text(), "1-weights")
            self.assertEqual(self.copy(cluster, f"{job}:out", here / "copy", "--rank", "1").returncode, 0)
            self.assertEqual((here / "copy" / "large").read_bytes(), (work / "out" / "large").read_bytes())
            self.assertEqual((here / "copy" / "deep" / "x").read_text(), "x")
            self.assertEqual(self.copy(cluster, f"{job}:out/model.pt", "-").stdout, "0-weights")
            absolute = (f"{job}:{work}/out/model.pt", here / "absolute")
            self.assertEqual(self.copy(cluster, *absolute).returncode, 1)  # of another rank
            self.assertEqual(self.copy(cluster, *absolute, "--rank", "1").returncode, 0)
            # The rest of what the rank wrote; a link leads outside but is not followed.
            self.assertEqual(self.copy(cluster, f"{job}:.", here, "--rank", "1").stdout, f"{here}/rank-0001\n")
            self.assertTrue((here / "rank-0001" / "escape").is_symlink())

            running = cluster.submit(shell_spec("running", "echo 1 > metrics.csv; exec sleep 600"))
            cluster.wait_for_state(running, "RUNNING")
            wait_until(lambda: self.copy(cluster, f"{running}:metrics.csv", "-").stdout == "1\n", 10,
                       "the file of a running job")
            cluster.muster("cancel", running, "--force")

    def test_refuses_paths_outside_and_names_node_and_path(self):
        with Cluster(nodes=1, slots=2) as cluster:
            job = cluster.submit(shell_spec("writes", WRITE))
            cluster.wait(job)
            for path in ("/etc/hostname", "../../../../../../../../../../etc/hostname", "escape"):
                result = self.copy(cluster, f"{job}:{path}", cluster.directory / "stolen")
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertRegex(result.stderr, r"node node-1: /etc/hostname is outside of \S+/work/rank-0000 and "
                                                rf"\S+/{job}/checkpoint\n$")
            missing = self.copy(cluster, f"{job}:out/none", cluster.directory / "none")
            self.assertEqual(missing.returncode, 1)
            self.assertRegex(missing.stderr, r"node node-1: \S+/rank-0000/out/none: No such file or directory")
            folder = self.copy(cluster, f"{job}:out", "-")
            self.assertEqual(folder.returncode, 2)
            self.assertIn("only a file can be written to stdout", folder.stderr)
            self.assertEqual(self.copy(cluster, "no-colon", "x").returncode, 2)
            self.assertEqual(self.copy(cluster, f"{job}:out", cluster.directory / "no" / "such").returncode, 1)
            cluster.workers.pop("node-1").stop()
            gone = self.copy(cluster, f"{job}:out", cluster.directory / "gone")
            self.assertEqual(gone.returncode, 69)
            self.assertIn("node-1", gone.stderr)
            # Nothing is left of failed copies.
            self.assertFalse(list(cluster.directory.glob(".muster-cp-*")))

    def test_belongs_to_owner(self):
        with UsersCluster(nodes=1, slots=1) as cluster:
            spec = cluster.write_spec(shell_spec("mine", WRITE))
            job = cluster.as_user("alice", "submit", spec, "-o", "name").stdout.strip()
            cluster.wait(job)
            for verb in (("cp", f"{job}:out/model.pt", "-"), ("rm", job)):
                refused = cluster.as_user("bob", *verb)
                self.assertEqual(refused.returncode, 77)
                self.assertIn(f"job {job} belongs to alice", refused.stderr)
            self.assertEqual(cluster.as_user("alice", "cp", f"{job}:out/model.pt", "-").stdout, "0-weights")
            self.assertEqual(cluster.as_user("alice", "rm", job).returncode, 0)


class RemoveTest(unittest.TestCase):
    def test_removes_finished_jobs_with_their_files(self):
        with Cluster(nodes=2, slots=1) as cluster:
            job = cluster.submit(shell_spec("over", WRITE, nodes=2))
            cluster.wait(job)
            runs = cluster.submit(shell_spec("runs", "exec sleep 600"))
            cluster.wait_for_state(runs, "RUNNING")
            directories = [cluster.directory / f"node-{n}" / "jobs" / job for n in (1, 2)]
            self.assertTrue(all((d / "work").is_dir() and (d / "logs").is_dir() for d in directories))
            result = cluster.muster("rm", job, runs, check=False)
            self.assertEqual(result.returncode, 1)
            self.assertEqual(result.stdout, f"{job} removed\n")
            self.assertIn(f"only a finished job can be removed: muster cancel {runs}", result.stderr)
            wait_until(lambda: not any(d.exists() for d in directories), 20, "the directories to be deleted")
            self.assertEqual(cluster.muster("get", job, check=False).returncode, 1)
            self.assertIn(f"job {job} was removed by local", cluster.coordinator.log())
            # It does not come back.
            cluster.coordinator.kill()
            cluster.start_coordinator()
            cluster.wait_for_nodes(2)
            self.assertEqual(cluster.muster("list", "-a", "-o", "name").stdout.split(), [runs])
            cluster.muster("cancel", runs, "--force")
            cluster.wait(runs, check=False)
            self.assertEqual(json.loads(cluster.muster("rm", runs, "-o", "json").stdout)["job_id"], runs)

    def test_reruns_a_job(self):
        with Cluster(nodes=1, slots=2) as cluster:
            spec = shell_spec("first", "echo $WORD $WORLD_SIZE", env={"WORD": "hello"})
            job = cluster.submit(spec)
            cluster.wait(job)
            again = cluster.muster("rerun", job, "-o", "name").stdout.strip()
            self.assertRegex(again, r"^first-\w+$")
            self.assertNotEqual(again, job)
            cluster.wait(again)
            self.assertEqual(cluster.get(again)["spec"], cluster.get(job)["spec"])
            result = cluster.muster("rerun", job, "--set", "resources.ranks_per_node=2", "--set", "env.WORD=bye",
                                    "--name", "second", "-f")
            self.assertEqual(sorted(line.split("| ")[-1] for line in result.stdout.splitlines()), ["bye 2", "bye 2"])
            self.assertRegex(cluster.muster("list", "-a", "-o", "name").stdout, r"(?m)^second-\w+$")
            wrong = cluster.muster("rerun", job, "--set", "resources.nodes=0", check=False)
            self.assertEqual(wrong.returncode, 78, wrong.stderr)
            self.assertEqual(cluster.muster("rerun", "no-job", check=False).returncode, 1)

    def test_rerun_continues_from_named_checkpoints(self):
        with Cluster(nodes=1) as cluster:
            job = cluster.submit(training_spec("first", max_steps=10,
                                               checkpoint={"dir": str(cluster.directory / "{node}" / "checkpoints")}))
            cluster.wait(job)
            again = cluster.muster("rerun", job, "--set", "train.max_steps=20", "-o", "name").stdout.strip()
            summary = cluster.wait(again)["summary"]
            self.assertEqual((summary["resumed_from_step"], summary["resumed_job_id"]), (10, job))
            self.assertEqual(summary["steps"], 20)
            other = cluster.muster("rerun", again, "--set", f"train.checkpoint.dir={cluster.directory / 'other'}",
                                   "-o", "name").stdout.strip()
            self.assertEqual(cluster.wait(other)["summary"]["resumed_from_step"], 0)

    def test_removes_disconnected_nodes(self):
        with Cluster(nodes=2, slots=2, coordinator_flags=["--lease=3s"]) as cluster:
            connected = cluster.muster("node", "remove", "node-2", check=False)
            self.assertEqual(connected.returncode, 1)
            self.assertIn("node node-2 is connected; stop its worker first", connected.stderr)
            cluster.workers.pop("node-2").kill()
            wait_until(lambda: any(n.get("state") == "LOST" for n in cluster.nodes()), 20, "node-2 lost")
            row = next(line for line in cluster.muster("node", "list").stdout.splitlines() if "LOST" in line)
            self.assertEqual(row.split()[:4], ["node-2", "LOST", "2", "0"])  # no free slots
            wait_until(lambda: "\nmuster_slots 2\n" in metrics(cluster), 10, "only the slots of node-1 are counted")
            self.assertEqual(cluster.muster("node", "remove", "node-2").stdout, "node-2 removed\n")
            self.assertEqual([n["name"] for n in cluster.nodes()], ["node-1"])
            cluster.coordinator.kill()
            cluster.start_coordinator()
            cluster.wait_for_nodes(1)
            self.assertEqual([n["name"] for n in cluster.nodes()], ["node-1"])
            # Its worker may come back.
            cluster.start_worker("node-2", 2)
            cluster.wait_for_nodes(2)

    def test_idempotency_key_with_another_spec_is_refused(self):
        with Cluster() as cluster:
            spec = cluster.write_spec(shell_spec("one", "true"))
            job = cluster.muster("submit", spec, "--idempotency-key", "k", "-o", "name").stdout
            self.assertEqual(cluster.muster("submit", spec, "--idempotency-key", "k", "-o", "name").stdout, job)
            refused = cluster.muster("submit", spec, "--idempotency-key", "k", "--priority", "5", check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(f"idempotency key k was already used for job {job.strip()} with another spec",
                          refused.stderr)


if __name__ == "__main__":
    unittest.main()
