"""Arrays of jobs and dependencies on a real cluster."""

import unittest

from tests.support.cluster import Cluster, shell_spec, wait_until


class ArrayTest(unittest.TestCase):
    def submit_array(self, cluster, spec, count):
        """The ids of the array and of its tasks."""
        job = cluster.submit(spec)
        tasks = [f"{job}-{i}" for i in range(count)]
        if cluster.muster("get", tasks[0], check=False).returncode != 0:
            job = cluster.get(job)["array_id"]  # it printed the first task
            tasks = [f"{job}-{i}" for i in range(count)]
        return job, tasks

    def states(self, cluster, tasks):
        return [cluster.get(task)["state"] for task in tasks]

    def test_array_runs_within_its_limit(self):
        with Cluster(nodes=2, slots=4) as cluster:
            trace = cluster.directory / "trace"
            script = (f"echo start $MUSTER_ARRAY_INDEX of $MUSTER_ARRAY_COUNT in $MUSTER_ARRAY_ID $0 >> {trace}; "
                      f"sleep 0.3; echo end >> {trace}")
            spec = dict(shell_spec("many", script), array={"count": 12, "concurrency": 3})
            spec["command"].append("{array_index}")
            array, tasks = self.submit_array(cluster, spec, 12)
            for task in tasks:
                self.assertEqual(cluster.wait(task)["state"], "SUCCEEDED")
            lines = trace.read_text().splitlines()
            running = 0
            for line in lines:
                running += 1 if line.startswith("start") else -1
                self.assertLessEqual(running, 3, lines)
            starts = sorted((line for line in lines if line.startswith("start")), key=lambda line: int(line.split()[1]))
            self.assertEqual(starts, [f"start {i} of 12 in {array} {i}" for i in range(12)])
            job = cluster.get(tasks[7])
            self.assertEqual((job["array_id"], job["array_index"], job["array_count"]), (array, 7, 12))

    def test_rerun_runs_a_task_again_as_that_task(self):
        with Cluster(nodes=1, slots=3) as cluster:
            script = 'echo "index=$MUSTER_ARRAY_INDEX of=$MUSTER_ARRAY_COUNT arg=$0"; test "$MUSTER_ARRAY_INDEX" != 2'
            spec = dict(shell_spec("shard", script), array={"count": 3})
            spec["command"].append("{array_index}")
            array, tasks = self.submit_array(cluster, spec, 3)
            states = [cluster.wait(task, check=False)["state"] for task in tasks]
            self.assertEqual(states, ["SUCCEEDED", "SUCCEEDED", "FAILED"])
            again = [cluster.muster("rerun", tasks[2], "-o", "name").stdout.strip(),
                     *cluster.muster("rerun", array, "--failed", "-o", "name").stdout.split()]
            self.assertEqual(len(again), 2)
            for job in again:
                self.assertEqual(cluster.wait(job, check=False)["state"], "FAILED")
                wait_until(lambda: cluster.muster("logs", job).stdout == "index=2 of=3 arg=2\n", 10, "log")

    def test_array_survives_a_restart_and_is_cancelled_as_one(self):
        with Cluster(nodes=1, slots=8) as cluster:
            spec = dict(shell_spec("long", "exec sleep 600"), array={"count": 6, "concurrency": 2})
            array, tasks = self.submit_array(cluster, spec, 6)
            for task in tasks[:2]:
                cluster.wait_for_state(task, "RUNNING")
            cluster.coordinator.kill()
            cluster.start_coordinator()
            cluster.wait_for_nodes(1)
            self.assertEqual(self.states(cluster, tasks), ["RUNNING"] * 2 + ["QUEUED"] * 4)
            waits = cluster.get(tasks[5])["waits"]
            self.assertEqual(waits[0]["missing"][0]["reason"], f"array {array} runs 2 of at most 2 tasks")
            cluster.muster("cancel", tasks[0], "--force")
            cluster.wait_for_state(tasks[2], "RUNNING")
            refused = cluster.muster("requeue", array, check=False)
            self.assertIn(f"{array} is an array of 6 tasks; name one of its tasks, as in {array}-0", refused.stderr)
            self.assertNotEqual(refused.returncode, 0)
            cancelled = cluster.muster("cancel", array, "--force", check=False)
            if "is an array of" in cancelled.stderr:
                self.skipTest("this build of muster cancel accepts no arrays")
            self.assertEqual(cancelled.returncode, 0, cancelled.stderr)
            wait_until(lambda: set(self.states(cluster, tasks)) == {"CANCELLED"}, 20, "all tasks cancelled")

    def test_matrix_sets_the_fields_of_each_task(self):
        with Cluster(nodes=1, slots=4) as cluster:
            spec = dict(shell_spec("grid", 'echo "$A $B"'),
                        array={"matrix": {"env.A": ["x", "y z"], "env.B": [1, 2]}})
            _, tasks = self.submit_array(cluster, spec, 4)
            for task, line in zip(tasks, ("x 1", "x 2", "y z 1", "y z 2")):
                self.assertEqual(cluster.wait(task)["state"], "SUCCEEDED")
                wait_until(lambda: line in cluster.muster("logs", task).stdout, 10, f"{line} in the log of {task}")
            values = cluster.get(tasks[2])["array_values"]
            self.assertEqual(values, [{"field": "env.A", "value": "y z"}, {"field": "env.B", "value": "1"}])
            bad = dict(spec, name="bad", array={"matrix": {"priority": [1, 5000]}})
            refused = cluster.muster("submit", cluster.write_spec(bad), check=False)
            self.assertEqual(refused.returncode, 78, refused.stderr)
            self.assertIn("priority: must be from -1000 to 1000, not 5000", refused.stderr)

    def test_tasks_set_their_own_fields(self):
        with Cluster(nodes=1, slots=4) as cluster:
            spec = dict(shell_spec("list", 'echo "$WORLD_SIZE $A"; exec sleep $B'), env={"A": "a", "B": "0"}, array={
                "tasks": [{}, {"env.A": "x y"}, {"resources.ranks_per_node": 2, "env.B": 600}], "concurrency": 2})
            _, tasks = self.submit_array(cluster, spec, 3)
            for task, line in zip(tasks[:2], ("1 a", "1 x y")):
                self.assertEqual(cluster.wait(task)["state"], "SUCCEEDED")
                wait_until(lambda: line in cluster.muster("logs", task).stdout, 10, f"{line} in the log of {task}")
            self.assertEqual(cluster.get(tasks[1])["array_values"], [{"field": "env.A", "value": "x y"}])
            cluster.wait_for_state(tasks[2], "RUNNING")
            wait_until(lambda: all(int(rank.get("memory_bytes", 0)) > 0 for rank in cluster.describe(tasks[2])["ranks"]),
                       20, "memory of both ranks")
            top = cluster.muster("top", "--once", tasks[2]).stdout.splitlines()
            self.assertRegex(top[2], r" MEMORY +NOTE$")
            for line in top[3:6]:
                self.assertRegex(line, r" [0-9.]+[KM] ")
            cluster.muster("cancel", tasks[2], "--force")


class DependencyTest(unittest.TestCase):
    def test_chain_runs_in_order(self):
        with Cluster(nodes=1, slots=4) as cluster:
            trace = cluster.directory / "trace"
            job = None
            for i in range(3):
                spec = shell_spec(f"step-{i}", f"sleep 0.2; echo {i} >> {trace}")
                if job:
                    spec["after"] = {"ok": [job]}
                job = cluster.submit(spec)
            self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
            self.assertEqual(trace.read_text().split(), ["0", "1", "2"])

    def test_failure_ends_what_depends_on_it(self):
        with Cluster(nodes=1, slots=4) as cluster:
            first = cluster.submit(shell_spec("first", "sleep 1; exit 3"))
            second = cluster.submit(dict(shell_spec("second", "true"), after={"ok": [first]}))
            third = cluster.submit(dict(shell_spec("third", "true"), after={"ok": [second]}))
            cleanup = cluster.submit(dict(shell_spec("cleanup", "true"), after={"failed": ["first"]}))
            self.assertEqual(cluster.get(second)["reason"], "Dependency")
            for job, other in ((second, first), (third, second)):
                ended = cluster.wait(job, check=False)
                self.assertEqual((ended["state"], ended["reason"]), ("FAILED", "DependencyFailed"))
                self.assertEqual(ended["message"], f"after.ok: {other} ended as FAILED")
            self.assertEqual(cluster.wait(cleanup)["state"], "SUCCEEDED")
            unknown = dict(shell_spec("unknown", "true"), after={"any": ["nothing"]})
            refused = cluster.muster("submit", cluster.write_spec(unknown), check=False)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn("after.any: no job nothing", refused.stderr)


if __name__ == "__main__":
    unittest.main()
