"""A user's program runs with its files, folder and environment: uploads, --workdir, -e, and `muster local`."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from tests.support.cluster import Cluster, binary, shell_spec, wait_until

PYTHON = "/usr/bin/python3"
TRAIN = """
import os
from conf import values
from conf.deep import more
rank = os.environ["RANK"]
print(rank, values.LEARNING_RATE, more.NAME, flush=True)
with open("out-" + rank, "w") as file:
    file.write(os.getcwd())
"""


def write(root, name, text, executable=False):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755 if executable else 0o644)
    return path


class FilesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=2, slots=4))

    def setUp(self):
        self.project = pathlib.Path(tempfile.mkdtemp(prefix="muster-project."))
        self.addCleanup(shutil.rmtree, self.project)

    def muster(self, *args, cwd=None, status=0, env=None):
        result = subprocess.run(self.cluster.command(*args), env=dict(self.cluster.client_env(), **(env or {})),
                                cwd=cwd or self.project, text=True, stdin=subprocess.DEVNULL, capture_output=True,
                                timeout=120, check=False)
        self.assertEqual(result.returncode, status, f"{args}\n{result.stdout}\n{result.stderr}")
        return result

    def inodes(self, digest):
        """Returns the inodes of the cached file on both nodes; another fetch would replace the file."""
        return [(self.cluster.directory / node / "files" / digest).stat().st_ino for node in ("node-1", "node-2")]

    def stored(self):
        root = self.cluster.directory / "coordinator" / "files"
        return {path.name for path in root.glob("??/*")}

    def test_uploads_script_with_helpers(self):
        """A relative script and a folder of modules reach every rank, each in a directory of its own."""
        write(self.project, "train.py", TRAIN)
        write(self.project, "conf/values.py", "LEARNING_RATE = 0.25\n")
        write(self.project, "conf/deep/more.py", "NAME = 'deep'\n")
        write(self.project, "conf/__pycache__/left.pyc", "x")
        result = self.muster("run", "--nodes", "2", "--ranks-per-node", "2", "--files", "conf/", "--", PYTHON,
                             "train.py")
        self.assertEqual(sorted(result.stdout.splitlines()), [f"{rank}| {rank} 0.25 deep" for rank in range(4)])
        self.assertIn("uploading 3 files (", result.stderr)
        work = list(self.cluster.directory.glob("node-*/jobs/*/work/rank-*/train.py"))
        self.assertEqual(len(work), 4, work)
        for path in work:
            rank = int(path.parent.name.split("-")[1])
            self.assertEqual((path.parent / f"out-{rank}").read_text(), str(path.parent))
        self.assertFalse(list(self.cluster.directory.glob("node-*/jobs/*/work/*/conf/__pycache__/left.pyc")))

    def test_hints_at_a_module_that_was_not_copied(self):
        write(self.project, "job.py", "import helper_of_job\nprint(helper_of_job.WORD)\n")
        write(self.project, "helper_of_job.py", "WORD = 'helped'\n")
        failed = self.muster("run", "--", PYTHON, "job.py", status=1)
        self.assertIn("add --files helper_of_job.py before `--`", failed.stderr)
        done = self.muster("run", "--files", "helper_of_job.py", "--", PYTHON, "job.py")
        self.assertEqual(done.stdout, "helped\n")
        hint = next(line.split() for line in done.stderr.splitlines() if line.startswith("results: muster cp "))
        self.muster(*hint[2:])
        self.assertTrue((self.project / hint[-1] / "job.py").exists())

    def test_uploads_once_until_file_changes(self):
        script = write(self.project, "count.sh", "#!/bin/sh\necho one\n", executable=True)
        first = self.muster("run", "--nodes", "2", "--", "./count.sh")
        self.assertEqual(sorted(first.stdout.splitlines()), ["0| one", "1| one"])
        self.assertIn("uploading count.sh (19 B)", first.stderr)
        digest = hashlib.sha256(script.read_bytes()).hexdigest()
        self.assertIn(digest, self.stored())
        before = self.inodes(digest)

        second = self.muster("run", "--nodes", "2", "--", "./count.sh")
        self.assertIn("count.sh (19 B) is unchanged since the last upload", second.stderr)
        self.assertEqual(self.inodes(digest), before)

        write(self.project, "count.sh", "#!/bin/sh\necho two\n", executable=True)
        third = self.muster("run", "--nodes", "2", "--", "./count.sh")
        self.assertEqual(sorted(third.stdout.splitlines()), ["0| two", "1| two"])
        self.assertIn("uploading count.sh", third.stderr)

    def test_files_of_spec(self):
        """Paths in a spec are relative to it; a restart begins with unmodified files."""
        write(self.project, "jobs/run.sh", "cat data.txt; echo changed > data.txt; exit $((1 - TORCHELASTIC_RESTART_COUNT))")
        write(self.project, "jobs/data.txt", "original\n")
        spec = shell_spec("spec-files", "", files=["run.sh", {"path": "data.txt"}], restart={"max": 1})
        spec["command"] = ["/bin/sh", "run.sh"]
        path = write(self.project, "jobs/job.json", json.dumps(spec))
        result = self.muster("run", path)
        self.assertEqual(result.stdout.splitlines(), ["original", "original"], result.stderr)

        job = self.muster("list", "-a", "-o", "name").stdout.split()[0]
        files = json.loads(self.muster("get", job, "-o", "json").stdout)["spec"]["files"]
        self.assertEqual([file["path"] for file in files], ["data.txt", "run.sh"])

    def test_rejects_bad_files(self):
        write(self.project, "train.py", "")
        (self.project / "sub").mkdir()
        for status, text, args, cwd in (
                (66, "none.py: No such file", ["--files", "none.py"], None),
                (78, "workdir is set", ["--files", "train.py", "--workdir", "."], None),
                (78, "give --workdir", [], self.project / "sub")):
            script = "train.py" if cwd is None else "../train.py"
            result = self.muster("submit", *args, "--", PYTHON, script, cwd=cwd, status=status)
            self.assertIn(text, result.stderr)

    def test_submission_needs_stored_files(self):
        """A spec from `muster get` runs again while its files are stored; otherwise the error names the path."""
        script = write(self.project, "gone.sh", f"echo {os.getpid()}\n")
        digest = hashlib.sha256(script.read_bytes()).hexdigest()
        job = self.muster("submit", "-o", "name", "--", "/bin/sh", "gone.sh").stdout.strip()
        self.cluster.wait(job)
        spec = json.loads(self.muster("get", job, "-o", "json").stdout)["spec"]
        again = {"name": "again", "command": spec["command"], "files": spec["files"]}
        path = write(self.project, "again.json", json.dumps(again))
        script.unlink()
        self.assertEqual(self.muster("run", path).stdout, f"{os.getpid()}\n")
        (self.cluster.directory / "coordinator" / "files" / digest[:2] / digest).unlink()
        result = self.muster("run", path, status=1)
        self.assertIn("gone.sh has not been uploaded", result.stderr)

    def test_working_directory(self):
        (self.project / "shared").mkdir()
        result = self.muster("run", "--workdir", "shared", "--", "/bin/sh", "-c", "pwd; env | grep ^PWD=; touch here")
        folder = str((self.project / "shared").resolve())
        self.assertEqual(result.stdout.splitlines(), [folder, f"PWD={folder}"])
        self.assertTrue((self.project / "shared" / "here").exists())

        result = self.muster("run", "--workdir", "~", "--", "/usr/bin/env", env={"HOME": folder})
        self.assertIn(f"PWD={folder}\n", result.stdout)
        result = self.muster("run", "--set", "workdir=~", "--", "/bin/true", status=78)
        self.assertIn("workdir: must be an absolute path on the node, not '~'", result.stderr)

        result = self.muster("run", "--", "/usr/bin/env")
        variables = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
        self.assertRegex(variables["PWD"], "/jobs/.*/work/rank-0000$")
        self.assertNotIn("OLDPWD", variables)

    def test_environment(self):
        """Ranks inherit a fixed list from the worker; users add what they need."""
        worker = dict(self.cluster.environment(), AWS_CA_BUNDLE="/worker", NCCL_DEBUG="WARN", PYTHONPATH="/worker")
        self.cluster.start_worker("node-env", 4, ["--labels=env=1"], env=worker)
        self.addCleanup(lambda: self.cluster.workers.pop("node-env").stop())
        self.cluster.wait_for_nodes(3)
        write(self.project, "job.env", "# for tests\nFROM_FILE=file\nBOTH=file\n")
        spec = shell_spec("env", "exec env", env={"FROM_SPEC": "spec", "BOTH": "spec"},
                          resources={"nodes": 3, "ranks_per_node": 4})
        path = write(self.project, "job.json", json.dumps(spec))
        result = self.muster("run", path, "--env-file", "job.env", "-e", "BOTH=option", "-e", "MINE", "-e", "A=b=c",
                             env={"MINE": "my value", "NOT_MINE": "x"})
        ranks = {}
        for line in result.stdout.splitlines():
            rank, _, entry = line.partition("| ")
            ranks.setdefault(rank, []).append(entry)
        self.assertEqual(len(ranks), 12)
        for entries in ranks.values():
            for entry in ("FROM_FILE=file", "FROM_SPEC=spec", "BOTH=option", "MINE=my value", "A=b=c"):
                self.assertIn(entry, entries)
            names = {entry.split("=")[0] for entry in entries}
            self.assertFalse(names & {"AWS_CA_BUNDLE", "PYTHONPATH", "NOT_MINE"})
            if "MUSTER_NODE_NAME=node-env" in entries:
                self.assertIn("NCCL_DEBUG=WARN", entries)
        result = self.muster("run", "-e", "NOT_SET_ANYWHERE", "--", "/usr/bin/env", status=78)
        self.assertIn("'NOT_SET_ANYWHERE': is not set here", result.stderr)

    def test_placeholders(self):
        result = self.muster("run", "--nodes", "2", "--ranks-per-node", "2", "--", "/bin/echo", "--local_rank={local_rank}",
                             "{node}/{node_rank}/{rank}", "${rank}")
        self.assertEqual(sorted(result.stdout.splitlines()), [
            f"{rank}| --local_rank={rank % 2} node-{rank // 2 + 1}/{rank // 2}/{rank} ${{rank}}" for rank in range(4)])


class RestartTest(unittest.TestCase):
    def test_files_survive_coordinator(self):
        """A job that waits while the coordinator is killed finds its files afterwards."""
        with tempfile.TemporaryDirectory(prefix="muster-project.") as folder, Cluster() as cluster:
            project = pathlib.Path(folder)
            write(project, "hello.py", "print('hello')\n")
            result = subprocess.run(cluster.command("submit", "-o", "name", "--", PYTHON, "hello.py"), cwd=project,
                                    env=cluster.client_env(), text=True, capture_output=True, timeout=60, check=True)
            job = result.stdout.strip()
            cluster.coordinator.kill()
            cluster.start_coordinator()
            cluster.start_worker("node-1")
            self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
            self.assertIn("hello", cluster.muster("logs", job).stdout)


class LocalTest(unittest.TestCase):
    def setUp(self):
        self.project = pathlib.Path(tempfile.mkdtemp(prefix="muster-project."))
        self.addCleanup(shutil.rmtree, self.project)
        self.temporary = self.project / "tmp"
        self.temporary.mkdir()

    def local(self, *args, status=0, **env):
        result = subprocess.run([binary("cli/muster"), "local", *args], cwd=self.project, text=True,
                                env=dict(os.environ, TMPDIR=str(self.temporary), **env), stdin=subprocess.DEVNULL,
                                capture_output=True, timeout=120, check=False)
        self.assertEqual(result.returncode, status, result.stderr)
        wait_until(lambda: not list(self.temporary.iterdir()), 10, "the private cluster's files are removed")
        return result

    def test_runs_in_the_current_folder(self):
        """The program inherits the user's environment, and the files that it writes are kept."""
        write(self.project, "train.py", "import os, helper\nopen('model.pt', 'w').write(os.environ['MY_SETTING'])\n"
                                        "print(os.getcwd(), helper.NAME)\n")
        write(self.project, "lib/helper.py", "NAME = 'helper'\n")
        result = self.local("--", PYTHON, "train.py", MY_SETTING="mine", PYTHONPATH=str(self.project / "lib"))
        self.assertEqual(result.stdout, f"{self.project.resolve()} helper\n")
        self.assertNotIn("uploading", result.stderr)
        self.assertEqual((self.project / "model.pt").read_text(), "mine")

    def test_files_run_in_own_directories(self):
        write(self.project, "run.sh", "pwd; echo weights > model.pt\n")
        result = self.local("--files", "run.sh", "--", "/bin/sh", "run.sh")
        self.assertRegex(result.stdout, "/work/rank-0000\n$")
        self.assertFalse((self.project / "model.pt").exists())

    def test_workdir(self):
        (self.project / "sub").mkdir()
        result = self.local("--workdir", "sub", "-e", "A=1", "--", "/bin/sh", "-c", "echo $A $PWD")
        self.assertEqual(result.stdout, f"1 {(self.project / 'sub').resolve()}\n")


if __name__ == "__main__":
    unittest.main()
