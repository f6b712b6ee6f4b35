"""`muster compare` of real jobs, after their nodes are gone."""

import json
import unittest

from tests.support.cluster import Cluster, shell_spec, training_spec


class CompareTest(unittest.TestCase):
    def rows(self, comparison, section, key="name"):
        return {row[key]: row["values"] for row in comparison[section]}

    def test_compares_jobs_whose_nodes_are_gone(self):
        with Cluster(nodes=2) as cluster:
            spec = training_spec("first", max_steps=120)
            first = cluster.run(spec)
            spec["name"] = "second"
            spec["train"]["optimizer"]["learning_rate"] = 0.01
            spec["resources"]["nodes"] = 2
            second = cluster.run(spec)
            command = cluster.submit(shell_spec("command", "exit 3"))
            cluster.wait(command, check=False)
            for worker in cluster.workers.values():
                worker.stop()

            result = cluster.muster("compare", first["job_id"], second["job_id"], "-o", "json")
            comparison = json.loads(result.stdout)
            self.assertEqual(comparison["jobs"], [first["job_id"], second["job_id"]])
            fields = self.rows(comparison, "spec", "field")
            self.assertEqual(fields["train.optimizer.learning_rate"], [0.05, 0.01])
            self.assertEqual(fields["name"], ["first", "second"])
            self.assertNotIn("train.global_batch", fields)
            self.assertEqual(self.rows(comparison, "environment")["nodes"], [1, 2])
            results = self.rows(comparison, "results")
            for name, key in (("final_loss", "final_loss"), ("test_accuracy", "test_accuracy"),
                              ("images_per_second", "images_per_second"), ("steps", "steps")):
                self.assertEqual(results[name], [first["summary"][key], second["summary"][key]], name)
            for name in ("step_seconds", "duration_seconds", "goodput_ratio"):
                self.assertTrue(all(value > 0 for value in results[name]), name)
            self.assertEqual(results["restarts"], [0, 0])
            self.assertIn("productive", self.rows(comparison, "seconds_by_cause", "cause"))
            steps = [row["step"] for row in comparison["curves"]]
            self.assertTrue(steps)
            self.assertEqual(steps, sorted(steps))
            self.assertTrue(all(loss > 0 for row in comparison["curves"] for loss in row["loss"]))

            text = cluster.muster("compare", first["job_id"], second["job_id"], command).stdout
            self.assertLessEqual(max(map(len, text.splitlines())), 80, text)
            for head in ("Spec", "Environment", "Results", "Time by cause", "Loss at equal steps"):
                self.assertIn(f"\n{head}\n", text)
            self.assertRegex(text, r"(?m)^state +SUCCEEDED +SUCCEEDED +FAILED$")
            self.assertEqual(cluster.muster("compare", command, command, "-o", "name").stdout, f"{command}\n" * 2)

            few = cluster.muster("compare", command, check=False)
            many = cluster.muster("compare", *[command] * 5, check=False)
            self.assertEqual((few.returncode, many.returncode), (2, 2), few.stderr + many.stderr)
            missing = cluster.muster("compare", command, "nothing", check=False)
            self.assertEqual(missing.returncode, 1)
            self.assertIn("nothing", missing.stderr)


if __name__ == "__main__":
    unittest.main()
