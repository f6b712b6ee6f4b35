"""`muster experiment` on a real cluster: grids, resuming, failures, Ctrl-C."""

import csv
import json
import signal
import subprocess
import unittest

from tests.support.cluster import Cluster, training_spec, wait_until


def experiment(base, grid, **more):
    return {"experiment": {"name": "trial", "repeat": more.pop("repeat", 1)}, "base": base, "grid": grid, **more}


def shell(script):
    """Base spec of a shell job; `scripts` returns the grid axis that sets its command."""
    return {"command": ["/bin/sh", "-c", script], "failure_timeout": "5s", "grace_period": "1s", "restart": {"max": 0}}


def scripts(**by_label):
    return {"script": [{"label": label, "set": {"command": ["/bin/sh", "-c", text]}} for label, text in by_label.items()]}


class Case(unittest.TestCase):
    def write(self, cluster, value):
        path = cluster.directory / "trial.json"
        path.write_text(json.dumps(value))
        return str(path)

    def out(self, cluster):
        return cluster.directory / "out"

    def arguments(self, cluster, value, *args):
        return ["experiment", self.write(cluster, value), "--out", self.out(cluster), *args]

    def run_it(self, cluster, value, *args, status=0):
        result = cluster.muster(*self.arguments(cluster, value, *args), check=False, timeout=300)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def results(self, cluster):
        return json.loads((self.out(cluster) / "results.json").read_text())

    def states(self, cluster):
        return [cell["state"] for cell in self.results(cluster)["cells"]]

    def jobs(self, cluster):
        listed = json.loads(cluster.muster("list", "-a", "-o", "json").stdout)
        return [job["job_id"] for job in listed]

    def job_states(self, cluster):
        return [cluster.get(job)["state"] for job in self.jobs(cluster)]


class TrainTest(Case):
    def test_runs_grid_of_four_cells(self):
        base = {key: value for key, value in training_spec("x", max_steps=8).items() if key != "name"}
        grid = {"ranks": {"field": "resources.ranks_per_node", "values": [1, 2]},
                "precision": {"field": "train.precision", "values": ["O0", "O2"]}}
        value = experiment(base, grid, baseline={"ranks": "1"}, found="Nothing yet.")
        with Cluster(nodes=1, slots=2) as cluster:
            table = self.run_it(cluster, value).stdout
            self.assertRegex(table.splitlines()[0], r"^RANKS +PRECISION +STATE +DEVICES +IMAGES/S ")
            self.assertEqual(len(table.splitlines()), 5)
            document = self.results(cluster)
            self.assertEqual([cell["name"] for cell in document["cells"]],
                             ["ranks=1 precision=O0", "ranks=1 precision=O2", "ranks=2 precision=O0",
                              "ranks=2 precision=O2"])
            one, _, two, _ = document["cells"]
            for cell in document["cells"]:
                self.assertEqual(cell["state"], "succeeded")
                for name in ("images_per_second", "median_step_seconds", "job_seconds", "peak_memory_bytes",
                             "test_accuracy", "speedup", "scaling_efficiency"):
                    self.assertIn(name, cell["metrics"])
                self.assertEqual(cell["metrics"]["steps"], 8)
            self.assertEqual(two["devices"], 2)
            ratio = two["metrics"]["images_per_second"] / one["metrics"]["images_per_second"]
            self.assertAlmostEqual(two["metrics"]["speedup"], ratio)
            self.assertAlmostEqual(two["metrics"]["scaling_efficiency"], ratio / 2)
            # The jobs ran with the requested specs.
            specs = [cluster.get(run["job"]["job_id"])["spec"] for run in document["runs"]]
            self.assertEqual([spec["train"]["precision"] for spec in specs], ["O0", "O2"] * 2)
            self.assertEqual([spec["resources"]["ranks_per_node"] for spec in specs], [1, 1, 2, 2])

            rows = list(csv.DictReader((self.out(cluster) / "results.csv").read_text().splitlines()))
            self.assertEqual(len(rows), 4)
            self.assertAlmostEqual(float(rows[2]["images_per_second"]), two["metrics"]["images_per_second"], 1)
            markdown = (self.out(cluster) / "results.md").read_text()
            self.assertIn("Nothing yet.", markdown)

            # A second run has nothing to do until a cell changes.
            again = self.run_it(cluster, value)
            self.assertIn("0 jobs to run; 4 already succeeded", again.stderr)
            self.assertEqual(len(self.jobs(cluster)), 4)
            grid["precision"]["values"] = ["O0", "O1"]
            self.assertIn("2 jobs to run; 2 already succeeded", self.run_it(cluster, value).stderr)
            self.assertIn("1 job to run", self.run_it(cluster, value, "--only", "ranks=1", "--only", "precision=O1",
                                                      "--rerun").stderr)
            self.assertEqual(len(self.jobs(cluster)), 7)


class FilesTest(Case):
    def test_uploads_files_and_tabulates_progress(self):
        base = {"command": ["/bin/sh", "run.sh"], "files": ["run.sh", "conf"]}
        value = experiment(base, {"rate": {"field": "env.RATE", "values": ["1", "2"]}})
        with Cluster(nodes=1) as cluster:
            (cluster.directory / "conf").mkdir()
            (cluster.directory / "conf/name").write_text("loss")
            script = cluster.directory / "run.sh"
            script.write_text('echo "step=3 $(cat conf/name)=0.$RATE" >> $MUSTER_PROGRESS\n')
            result = self.run_it(cluster, value)
            self.assertEqual(result.stderr.count("uploading 2 files"), 1, result.stderr)
            self.assertRegex(result.stdout, r"(?m)^RATE +STATE +DEVICES +JOB TIME +LOSS +STEPS")
            self.assertRegex(result.stdout, r"(?m)^2 +succeeded +1 .* 0\.2 +3$")
            self.assertIn("0 jobs to run", self.run_it(cluster, value).stderr)
            script.write_text(script.read_text() + "exit 3\n")
            self.assertIn("2 jobs to run", self.run_it(cluster, value, status=1).stderr)


class ParallelTest(Case):
    def test_runs_cells_at_the_same_time(self):
        """Each cell waits for the other one."""
        meet = "touch {mine}; until [ -e {other} ]; do sleep 0.05; done"
        with Cluster(nodes=1, slots=2) as cluster:
            paths = [cluster.directory / name for name in ("left", "right")]
            value = experiment(shell("true"), scripts(
                left=meet.format(mine=paths[0], other=paths[1]), right=meet.format(mine=paths[1], other=paths[0]),
                bad="exit 7"))
            self.run_it(cluster, value, "--parallel", "2", status=1)
            self.assertEqual(self.states(cluster), ["succeeded", "succeeded", "failed"])

    def test_interrupt_cancels_all_running_jobs(self):
        value = experiment(shell("true"), scripts(one="sleep 1000", two="exec sleep 1000", three="true"))
        with Cluster(nodes=1, slots=2) as cluster:
            process = cluster.popen(*self.arguments(cluster, value, "--parallel", "2"))
            wait_until(lambda: sorted(self.job_states(cluster)) == ["QUEUED", "RUNNING", "RUNNING"], 20, "two jobs run")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 130, err)
            self.assertIn("cancelling the jobs", err)
            self.assertEqual(self.job_states(cluster), ["CANCELLED"] * 3)


class FailureTest(Case):
    def test_reports_failed_cell_and_runs_others(self):
        value = experiment(shell("true"), scripts(good="true", bad="echo no such luck >&2; exit 7", last="exit 0"),
                           skip=[{"when": {"script": "last"}, "reason": "not today"}])
        with Cluster(nodes=1) as cluster:
            result = self.run_it(cluster, value, status=1)
            self.assertRegex(result.stdout, r"\ngood +succeeded ")
            self.assertRegex(result.stdout, r"\nbad +failed ")
            self.assertRegex(result.stdout, r"\nscript=bad: failed: RankFailed: .*code 7")
            self.assertIn("script=last: left out: not today", result.stdout)
            self.assertIn("no such luck", result.stderr)
            self.assertEqual(self.states(cluster), ["succeeded", "failed", "left out"])
            # Only the failed cell is retried.
            self.run_it(cluster, value, status=1)
            self.assertEqual(len(self.jobs(cluster)), 3)

    def test_submits_nothing_when_a_spec_is_invalid(self):
        value = experiment(shell("true"), {"nodes": {"field": "resources.nodes", "values": [1, 0]}})
        with Cluster(nodes=1) as cluster:
            result = self.run_it(cluster, value, status=78)
            self.assertIn("(in nodes=0)", result.stderr)
            self.assertEqual(self.jobs(cluster), [])
            self.assertFalse(self.out(cluster).exists())

    def test_without_a_coordinator(self):
        with Cluster() as cluster:
            cluster.coordinator.stop()
            self.run_it(cluster, experiment(shell("true"), {}), status=69)
            self.assertEqual(self.states(cluster), ["pending"])


class InterruptionTest(Case):
    def start(self, cluster, value):
        """Starts the experiment and waits until its second job runs, and it knows that the first one has succeeded."""
        process = cluster.popen(*self.arguments(cluster, value))
        wait_until(lambda: (self.out(cluster) / "second").exists(), 60, "the second cell's job")
        wait_until(lambda: self.states(cluster)[0] == "succeeded", 60, "the first cell's result")
        return process

    def value(self, cluster):
        out = self.out(cluster)
        # The second job waits until the file `go` exists.
        wait = f"touch {out}/second; until [ -e {out}/go ]; do sleep 0.1; done"
        return experiment(shell("true"), scripts(first="true", second=wait, third="exit 0"))

    def test_resumes_after_kill(self):
        with Cluster(nodes=1) as cluster:
            value = self.value(cluster)
            process = self.start(cluster, value)
            process.kill()
            process.communicate()
            self.assertEqual(self.states(cluster), ["succeeded", "pending", "pending"])
            jobs = sorted(self.jobs(cluster))
            self.assertEqual(len(jobs), 3)
            (self.out(cluster) / "go").touch()
            result = self.run_it(cluster, value)
            self.assertIn("2 jobs to run; 1 already succeeded", result.stderr)
            # The jobs are taken over, and no others were queued.
            self.assertEqual(sorted(self.jobs(cluster)), jobs)
            self.assertEqual([run["job"]["job_id"] for run in self.results(cluster)["runs"]], jobs)
            self.assertEqual(self.states(cluster), ["succeeded"] * 3)

    def test_jobs_run_without_the_process(self):
        with Cluster(nodes=1) as cluster:
            value = self.value(cluster)
            process = self.start(cluster, value)
            # As a terminal that is closed.
            process.send_signal(signal.SIGHUP)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, err)
            listed = cluster.muster("list").stdout.splitlines()
            self.assertEqual(len(listed), 2, listed)
            self.assertRegex(listed[1], r"^trial-\w+\[3\] ")
            (self.out(cluster) / "go").touch()
            wait_until(lambda: self.job_states(cluster) == ["SUCCEEDED"] * 3, 60, "all jobs succeed")
            result = self.run_it(cluster, value)
            self.assertIn("2 jobs to run; 1 already succeeded", result.stderr)
            self.assertEqual(self.states(cluster), ["succeeded"] * 3)
            self.assertEqual(len(self.jobs(cluster)), 3)

    def test_one_cancel_stops_all(self):
        with Cluster(nodes=1) as cluster:
            process = self.start(cluster, self.value(cluster))
            array = cluster.get(self.jobs(cluster)[0])["array_id"]
            cluster.muster("cancel", array)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1, err)
            self.assertEqual(self.states(cluster), ["succeeded", "failed", "failed"])

    def test_ctrl_c_cancels_job_and_keeps_results(self):
        with Cluster(nodes=1) as cluster:
            value = self.value(cluster)
            process = self.start(cluster, value)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, err)
            self.assertIn("interrupted; cancelling", err)
            self.assertRegex(out, r"\nfirst +succeeded ")
            self.assertEqual(self.states(cluster), ["succeeded", "pending", "pending"])
            self.assertEqual(sorted(self.job_states(cluster)), ["CANCELLED", "CANCELLED", "SUCCEEDED"])
            (self.out(cluster) / "go").touch()
            self.run_it(cluster, value)
            self.assertEqual(self.states(cluster), ["succeeded"] * 3)


class LocalTest(unittest.TestCase):
    def test_local(self):
        with Cluster() as cluster:  # only its directory is used
            path = cluster.directory / "trial.json"
            out = cluster.directory / "out"
            path.write_text(json.dumps(experiment(shell("true"), {"ranks": {
                "field": "resources.ranks_per_node", "values": [1, 3]}})))
            result = cluster.muster("--coordinator=127.0.0.1:1", "experiment", path, "--local", "--out", out, "-o", "json")
            self.assertEqual([cell["state"] for cell in json.loads(result.stdout)["cells"]], ["succeeded"] * 2)
            self.assertEqual(cluster.muster("list", "-a", "-o", "name").stdout, "")


if __name__ == "__main__":
    unittest.main()
