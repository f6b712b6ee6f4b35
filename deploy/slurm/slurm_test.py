"""deploy/slurm/muster.sbatch on a real slurmctld with four slurmd of one machine, whose GPUs are fakes."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from tests.support import slurm
from tests.support.daemon import binary, wait_until
from tests.support.fake_gpus import FakeGpus

SCRIPT = pathlib.Path("deploy/slurm/muster.sbatch").absolute()
NODES = ["s1", "s2", "s3", "s4"]
# Fails with 3 unless all nodes are there and a job runs on them.
COMMAND = """
until [ "$(muster node list -o name | wc -l)" = {nodes} ]; do sleep 0.1; done
muster node list -o json >nodes.json
show='echo "rank $RANK on $MUSTER_NODE_NAME: [$CUDA_VISIBLE_DEVICES] [$SLURM_JOB_ID]"'
muster run --nodes {nodes} --set resources.share_device=true -- /bin/sh -c "$show"
exit 3
"""


@unittest.skipIf(slurm.missing_programs(), f"missing {', '.join(slurm.missing_programs())}: apt-get install slurm-wlm")
@unittest.skipIf(os.geteuid() != 0, "only root can create the device files of Slurm's GPUs")
class SlurmTest(unittest.TestCase):
    def setUp(self):
        self.slurm = self.enterContext(slurm.SlurmCluster(nodes=4, slots=4, gpus=4))
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="muster-sbatch."))
        self.addCleanup(shutil.rmtree, self.directory)
        self.home, self.tmp, self.bin, self.work = (self.directory / name for name in ("home", "tmp", "bin", "work"))
        for folder in (self.home, self.tmp, self.bin, self.work):
            folder.mkdir()
        for program in ("cli/muster", "coordinator/muster-coordinator"):
            (self.bin / pathlib.Path(program).name).symlink_to(binary(program))
        gpus = FakeGpus(self.directory, 4)
        (self.bin / "muster-worker").write_text(
            f'#!/bin/sh\nexec {binary("worker/muster-worker")} {gpus.flags()[0]} "$@"\n')
        (self.bin / "muster-worker").chmod(0o755)
        # Settings for another cluster, which must not matter.
        self.env = gpus.environment(dict(self.slurm.env(), HOME=str(self.home), TMPDIR=str(self.tmp), USER="tester",
                                         PATH=f"{self.bin}:{os.environ['PATH']}", MUSTER_COORDINATOR="127.0.0.1:1"))

    def sbatch(self, *argv):
        shown = subprocess.run(["sbatch", "--parsable", f"--output={self.directory}/log", *argv], env=self.env,
                               cwd=self.work, capture_output=True, text=True, check=False)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        return shown.stdout.strip()

    def log(self):
        path = self.directory / "log"
        return path.read_text() if path.exists() else ""

    def wait_for_end(self, job):
        """Returns the exit code of Slurm's job."""
        def ended():
            shown = self.slurm.run("scontrol", "show", "job", "--oneliner", job)
            self.assertNotIn("State=PENDING Reason=Bad", shown)
            return re.search(r"JobState=(?!RUNNING|PENDING|COMPLETING).* ExitCode=(\d+):", shown)
        try:
            return int(wait_until(ended, 60, f"job {job} to end")[1])
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from error

    def check_nothing_is_left(self):
        self.assertEqual([*self.tmp.iterdir(), *self.home.glob(".muster/slurm/*")], [])
        self.assertEqual(self.processes(), [])

    def processes(self):
        """Command lines of the processes that use the test's directory."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if str(self.directory) in command:
                    found.append(command)
        return found

    def test_command_runs_on_granted_gpus(self):
        job = self.sbatch("--nodes=4", "--gres=gpu:2", str(SCRIPT), "bash", "-c", COMMAND.format(nodes=4))
        self.assertEqual(self.wait_for_end(job), 3, self.log())
        nodes = json.loads((self.work / "nodes.json").read_text())
        self.assertEqual({node["name"]: [slot["uuid"] for slot in node["slots"]] for node in nodes},
                         {name: ["GPU-0", "GPU-1"] for name in NODES})
        for rank, name in enumerate(NODES):
            self.assertRegex(self.log(), rf"rank \d on {name}: \[GPU-\d\] \[\]", f"rank {rank}")
        self.check_nothing_is_left()

    def test_cluster_without_gpus_ends_with_the_allocation(self):
        job = self.sbatch("--nodes=2", "--cpus-per-task=2", str(SCRIPT))
        config = self.home / ".muster/slurm" / job / "config"
        wait_until(config.exists, 30, "the configuration")
        self.assertEqual(config.stat().st_mode & 0o777, 0o600)
        env = dict(self.env, MUSTER_CONFIG=str(config))
        del env["MUSTER_COORDINATOR"]

        def muster(*argv):
            return subprocess.run(["muster", *argv], env=env, capture_output=True, text=True, check=False)
        wait_until(lambda: len(muster("node", "list", "-o", "name").stdout.split()) == 2, 30, f"nodes: {self.log()}")
        nodes = json.loads(muster("node", "list", "-o", "json").stdout)
        self.assertEqual([[slot["kind"] for slot in node["slots"]] for node in nodes], [["cpu", "cpu"]] * 2)
        result = muster("run", "--nodes", "2", "--", "/bin/sh", "-c", 'echo "rank $RANK"')
        self.assertEqual(result.returncode, 0, result.stderr)
        script = "trap 'sleep 0.5; echo saved >$0; exit 0' TERM; echo >$0.up; while :; do sleep 0.1; done"
        muster("submit", "--", "/bin/bash", "-c", script, f"{self.work}/saved")
        wait_until((self.work / "saved.up").exists, 10, "the rank")
        self.slurm.run("scancel", "--batch", "--signal=TERM", job)
        self.wait_for_end(job)
        self.assertTrue((self.work / "saved").exists(), "the rank had no time to save")
        self.check_nothing_is_left()

    def test_scancel_leaves_no_process(self):
        job = self.sbatch("--nodes=2", str(SCRIPT))
        wait_until((self.home / ".muster/slurm" / job / "config").exists, 30, "the configuration")
        self.slurm.run("scancel", job)
        self.wait_for_end(job)
        wait_until(lambda: not self.processes(), 10, f"processes to end: {self.processes()}")


if __name__ == "__main__":
    unittest.main()
