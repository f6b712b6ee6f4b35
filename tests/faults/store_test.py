"""A coordinator with an empty, wrong or restored store leaves running ranks alone; their jobs can be recovered."""

import json
import shutil
import unittest
import urllib.error
import urllib.request

from tests.support.cluster import Cluster, shell_spec, wait_until
from tests.support.footprint import state_and_parent


def endless_spec(cluster, name, **kwargs):
    """A job that counts steps until the file NAME.end exists."""
    end = cluster.directory / f"{name}.end"
    return shell_spec(
        name, f'i=0; while [ ! -e {end} ]; do i=$((i+1)); echo step=$i >> "$MUSTER_PROGRESS"; sleep 0.05; done',
        **kwargs)


def end(cluster, name):
    (cluster.directory / f"{name}.end").touch()


def node(cluster, name):
    return next(n for n in cluster.nodes() if n["name"] == name)


def wait_for_conflict(cluster, name):
    return wait_until(lambda: next((n["conflict"] for n in cluster.nodes() if n["name"] == name and n.get("conflict")),
                                   None), 20, f"conflict of {name}")


def wait_for_no_conflict(cluster, name):
    wait_until(lambda: any(n["name"] == name and n["state"] == "READY" and not n.get("conflict")
                           for n in cluster.nodes()), 20, f"{name} without conflict")


def readyz(worker):
    try:
        return urllib.request.urlopen(f"http://{worker.addresses['http']}/readyz?verbose", timeout=5).read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


def shell_pids(cluster, name):
    """Processes of the job's ranks, shims excluded."""
    shells = {pid for pid, command in cluster.processes() if command.startswith("/bin/bash -c") and
              f"{name}.end" in command}
    # A child that is about to execute another program has the command of its parent for a moment.
    return sorted(pid for pid in shells if state_and_parent(pid)[1] not in shells | {None})


class StoreTest(unittest.TestCase):
    def replace_store(self, cluster, name="elsewhere"):
        """Restarts the coordinator with another data directory."""
        cluster.coordinator.stop()
        cluster.start_coordinator(data_dir=cluster.directory / name)

    def start_job(self, cluster, name, **kwargs):
        job = cluster.submit(endless_spec(cluster, name, **kwargs))
        cluster.wait_for_step(job, 3)
        return job

    def test_empty_store_leaves_ranks_alone_until_the_right_one_returns(self):
        with Cluster(nodes=1) as cluster:
            job = self.start_job(cluster, "kept")
            pids = shell_pids(cluster, "kept")
            self.assertTrue(pids)
            self.replace_store(cluster)
            self.assertIn("belong to cluster", wait_for_conflict(cluster, "node-1"))
            self.assertIn("CONFLICT", cluster.muster("node", "list").stdout)
            self.assertIn("belong to cluster", cluster.muster("node", "describe", "node-1").stdout)
            self.assertIn("[-]cluster failed", readyz(cluster.workers["node-1"]))
            waiting = cluster.submit(shell_spec("waiting", "true"))
            self.assertIn("in conflict", cluster.muster("why", waiting).stdout)
            self.assertEqual(shell_pids(cluster, "kept"), pids)
            cluster.coordinator.stop()
            cluster.start_coordinator()
            wait_for_no_conflict(cluster, "node-1")
            self.assertEqual(shell_pids(cluster, "kept"), pids)
            end(cluster, "kept")
            finished = cluster.wait(job)
            self.assertEqual(finished["state"], "SUCCEEDED")
            self.assertEqual(int(finished["generation"]), 1)

    def test_recovered_job_continues(self):
        with Cluster(nodes=2) as cluster:
            job = self.start_job(cluster, "both", nodes=2)
            pids = shell_pids(cluster, "both")
            self.assertEqual(len(pids), 2)
            self.replace_store(cluster)
            for name in cluster.workers:
                wait_for_conflict(cluster, name)
            recovered = json.loads(cluster.muster("admin", "recover", "-o", "json").stdout)
            self.assertEqual(recovered["job_ids"], [job])
            self.assertEqual(recovered["nodes"], ["node-1", "node-2"])
            for name in cluster.workers:
                wait_for_no_conflict(cluster, name)
            cluster.wait_for_state(job, "RUNNING")
            self.assertEqual(shell_pids(cluster, "both"), pids)
            self.assertIn("[+]cluster ok", readyz(cluster.workers["node-1"]))
            end(cluster, "both")
            finished = cluster.wait(job)
            self.assertEqual(finished["state"], "SUCCEEDED")
            self.assertEqual(int(finished["generation"]), 1)

    def test_job_with_missing_node_is_queued_again(self):
        with Cluster(nodes=2) as cluster:
            job = self.start_job(cluster, "half", nodes=2)
            cluster.workers["node-2"].kill()
            self.replace_store(cluster)
            wait_for_conflict(cluster, "node-1")
            cluster.muster("admin", "recover", "node-1")
            queued = cluster.wait_for_state(job, "QUEUED")
            self.assertEqual(queued["reason"], "Recovered")
            # It returns with ranks of a generation that has ended, which this coordinator may not stop.
            cluster.start_worker("node-2")
            wait_for_conflict(cluster, "node-2")
            cluster.muster("admin", "recover", "node-2", "--discard")
            running = cluster.wait_for_state(job, "RUNNING")
            self.assertGreater(int(running["generation"]), 1000)  # the lost store may return and use 2
            end(cluster, "half")
            self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")

    def test_restored_store_never_reuses_generation(self):
        with Cluster(nodes=1) as cluster:
            job = self.start_job(cluster, "restored")
            cluster.coordinator.stop()
            shutil.copytree(cluster.site("coordinator").data_dir, cluster.directory / "copy")
            cluster.start_coordinator()
            wait_for_no_conflict(cluster, "node-1")
            cluster.muster("requeue", job)
            wait_until(lambda: int(cluster.get(job)["generation"]) == 2 and
                       cluster.get(job)["state"] == "RUNNING", 30, "generation 2")
            pids = shell_pids(cluster, "restored")
            self.replace_store(cluster, "copy")
            self.assertIn("restored from a copy", wait_for_conflict(cluster, "node-1"))
            self.assertEqual(shell_pids(cluster, "restored"), pids)
            cluster.muster("admin", "recover")
            wait_for_no_conflict(cluster, "node-1")
            running = cluster.wait_for_state(job, "RUNNING")
            self.assertEqual(int(running["generation"]), 2)
            self.assertEqual(shell_pids(cluster, "restored"), pids)
            cluster.muster("requeue", job)
            wait_until(lambda: int(cluster.get(job)["generation"]) > 2, 30, "the next generation")
            end(cluster, "restored")
            self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")

    def test_discarded_ranks_are_stopped(self):
        with Cluster(nodes=1) as cluster:
            self.start_job(cluster, "moved")
            self.replace_store(cluster)
            wait_for_conflict(cluster, "node-1")
            cluster.muster("admin", "recover", "node-1", "--discard")
            wait_until(lambda: not shell_pids(cluster, "moved"), 20, "no rank")
            wait_for_no_conflict(cluster, "node-1")
            self.assertEqual(cluster.run(shell_spec("next", "true"))["state"], "SUCCEEDED")

    def test_version_shows_cluster(self):
        with Cluster() as cluster:
            shown = json.loads(cluster.muster("version", "--server", "-o", "json").stdout)["coordinator"]
            self.assertEqual(len(shown["cluster_id"]), 32)
            page = json.loads(urllib.request.urlopen(f"http://{cluster.http}/version", timeout=5).read())
            self.assertEqual(page["cluster_id"], shown["cluster_id"])
            metrics = urllib.request.urlopen(f"http://{cluster.http}/metrics", timeout=5).read().decode()
            self.assertIn(f'muster_store_info{{cluster_id="{shown["cluster_id"]}"}} 1', metrics)
            cluster.coordinator.stop()
            cluster.start_coordinator()
            again = json.loads(cluster.muster("version", "--server", "-o", "json").stdout)["coordinator"]
            self.assertEqual(again["cluster_id"], shown["cluster_id"])


class MachineTest(unittest.TestCase):
    def test_clone_does_not_take_over_the_name_of_a_healthy_worker(self):
        with Cluster(nodes=0, coordinator_flags=["--lease=3s"]) as cluster:
            original = cluster.start_worker("twin", flags=["--machine-id=aaaa"])
            cluster.wait_for_nodes(1)
            job = cluster.submit(endless_spec(cluster, "twins"))
            cluster.wait_for_step(job, 2)
            original.kill()  # breaks its stream
            clone = cluster.start_worker("twin", flags=["--machine-id=bbbb"], data_dir=cluster.directory / "clone")
            wait_until(lambda: "belongs to machine aaaa" in clone.log(), 10, "refusal of the clone")
            self.assertEqual(node(cluster, "twin")["machine_id"], "aaaa")
            cluster.start_worker("twin", flags=["--machine-id=aaaa"])
            wait_until(lambda: node(cluster, "twin")["state"] == "READY", 10, "the original back")
            clone.stop()
            end(cluster, "twins")
            finished = cluster.wait(job)
            self.assertEqual((finished["state"], int(finished["generation"])), ("SUCCEEDED", 1))
