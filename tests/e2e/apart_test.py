"""Coordinator and workers on separate simulated machines that share only a network, with network partitions.

Each daemon has its own network, mount, pid and host-name namespace (tests/support/namespaces.py): its own address,
/tmp, /dev/shm, /proc and loopback. A partition drops packets silently, as a failing switch does.
"""

import os
import re
import time
import unittest

from tests.support import namespaces
from tests.support.apart import ApartCluster
from tests.support.cluster import command_spec, shell_spec, training_spec, wait_until

WHY_NOT = namespaces.why_not()

# Like PyTorch's own examples: env:// and DistributedDataParallel, without any Muster code. It
# trains until a file on one of its machines ends it.
TORCH_SCRIPT = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo", init_method="env://")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
torch.set_num_threads(1)
model = DistributedDataParallel(torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
inputs, targets = torch.randn(world, 32, 64), torch.randn(world, 32, 8)
step, done = 0, torch.zeros(1)
while not done:
    step += 1
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs[rank]), targets[rank])
    loss.backward()
    optimizer.step()
    print("step", step, flush=True)
    done[0] = os.path.exists("/tmp/done")
    dist.all_reduce(done)
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
both = [torch.empty_like(weights) for _ in range(world)]
dist.all_gather(both, weights)
assert all(torch.equal(both[0], other) for other in both)
dist.barrier()
print("equal on", world, "ranks", flush=True)
"""

# Waits for the key "a" in the protocol of PyTorch 1.13.
WAIT_IN_STORE = """
import os, socket, struct
with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as store:
    store.sendall(struct.pack("<BQQ2s", 5, 1, 2, b"/a"))
    store.recv(1)
"""


def heartbeat_age(cluster, name):
    node = next(n for n in cluster.nodes() if n["name"] == name)
    return float(node["heartbeat_age"].rstrip("s"))


def alive(pids):
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}/exe")]


@unittest.skipIf(WHY_NOT, WHY_NOT)
class ApartTest(unittest.TestCase):
    def install_torch_script(self, cluster):
        for name in ("node-1", "node-2"):
            cluster.machine(name).install(self.script, "/tmp/train.py")

    def setUp(self):
        self.script = f"/tmp/muster-apart-{os.getpid()}.py"
        with open(self.script, "w", encoding="utf-8") as out:
            out.write(TORCH_SCRIPT)
        self.addCleanup(os.unlink, self.script)

    def steps_in_log(self, cluster, job, node, rank):
        path = cluster.data_dir(node) / f"jobs/{job}/logs/generation-1/rank-{rank:04}.stdout"
        found = re.findall(r"(?m)^step (\d+)$", path.read_text()) if path.exists() else []
        return int(found[-1]) if found else 0

    def test_machines_share_nothing_but_the_network(self):
        """Checks the isolation that the other tests rely on, and that ranks of two nodes connect over the network."""
        with ApartCluster(nodes=2, slots=2) as cluster:
            machines = [cluster.machine(name) for name in ("coordinator", "node-1", "node-2")]
            for kind in ("net", "mnt", "pid", "uts", "ipc"):
                spaces = {os.readlink(f"/proc/{pid}/ns/{kind}") for pid in [os.getpid(), *(m.pid for m in machines)]}
                self.assertEqual(len(spaces), 4, kind)
            addresses = {n["name"]: n["address"] for n in cluster.nodes()}
            self.assertEqual(addresses, {m.name: m.address for m in machines[1:]})
            job = cluster.run(training_spec("native", max_steps=60, resources={"nodes": 2, "ranks_per_node": 2}))
            self.assertEqual((job["state"], int(job["summary"]["steps"])), ("SUCCEEDED", 60))
            self.assertIn("which reached every node before it", cluster.muster("logs", job["job_id"]).stdout)
            seen = "echo $(hostname) $(ls /tmp/data | wc -l) $(ls /proc | grep -c '^[0-9]')"
            job = cluster.run(shell_spec("look", seen, nodes=2))
            logs = cluster.muster("logs", job["job_id"]).stdout
            self.assertIn("0| node-1", logs)
            self.assertIn("1| node-2", logs)
            for machine in machines[1:]:
                # Only the worker's own folder, for the states of its jobs' ranks.
                shared = machine.path("/dev/shm")
                self.assertEqual(len(list(shared.iterdir())), 1)
                self.assertEqual(list(shared.glob("*/*")), [])

    def test_hosted_store_names_ranks_of_other_machines(self):
        """A rank that has sent nothing but the request in which it waits."""
        with ApartCluster(nodes=2, slots=2) as cluster:
            job = cluster.submit(command_spec("store", "/usr/bin/python3", "-c", WAIT_IN_STORE, nodes=2,
                                              env={"MUSTER_HOSTED_STORE": "1"}))
            wait_until(lambda: any(wait["what"] == 'c10d key "a" (awaited by ranks 0 and 1)'
                                   for wait in cluster.get(job).get("waits", [])), 20, "both ranks to be named")
            cluster.muster("cancel", job)
            self.assertEqual(cluster.wait(job, check=False)["state"], "CANCELLED")

    def test_fails_when_nodes_cannot_reach_each_other(self):
        with ApartCluster(nodes=2, slots=2) as cluster:
            for name in ("node-1", "node-2"):
                cluster.machine(name).isolate()
            job = cluster.run(training_spec("walled", resources={"nodes": 2, "ranks_per_node": 2}, restart={"max": 0},
                                            failure_timeout="12s"), check=False)
            self.assertEqual((job["state"], job["reason"]), ("FAILED", "RankFailed"), job)
            address = cluster.machine("node-1").address.replace(".", r"\.")
            self.assertRegex(job["message"], rf"node node-2 cannot reach node node-1 at {address}:\d+ \(interface eth0\): "
                                             r"(No route to host|connection timed out after .*)")
            self.assertEqual(job["first_failure"]["node"], "node-2")

    def test_partition_shorter_than_lease(self):
        """Both kinds of job pause, then continue in the same generation without losing anything."""
        with ApartCluster(nodes=2, slots=2) as cluster:
            self.install_torch_script(cluster)
            torch = cluster.submit(command_spec("torch", "/usr/bin/python3", "/tmp/train.py", nodes=2))
            wait_until(lambda: self.steps_in_log(cluster, torch, "node-2", 1) > 5, 60, "PyTorch's first steps")
            native = cluster.submit(training_spec("native", max_steps=400,
                                                  resources={"nodes": 2, "ranks_per_node": 1}))
            cluster.wait_for_step(native, 50)
            self.assertEqual(cluster.get(torch)["state"], "RUNNING")

            cluster.machine("node-2").cut()
            wait_until(lambda: heartbeat_age(cluster, "node-2") > 1.5, 10, "silence")
            at_cut = self.steps_in_log(cluster, torch, "node-1", 0)
            wait_until(lambda: heartbeat_age(cluster, "node-2") > 3, 10, "more silence")
            self.assertLessEqual(self.steps_in_log(cluster, torch, "node-1", 0), at_cut + 1)  # the partition took effect
            cluster.machine("node-2").heal()
            wait_until(lambda: heartbeat_age(cluster, "node-2") < 1.5, 9, "node-2's heartbeats to resume")
            for job in (torch, native):
                self.assertEqual(cluster.get(job)["state"], "RUNNING", job)

            healed = self.steps_in_log(cluster, torch, "node-1", 0)
            wait_until(lambda: self.steps_in_log(cluster, torch, "node-1", 0) > healed + 5, 20, "PyTorch's next steps")
            cluster.machine("node-2").path("/tmp/done").touch()
            for job in (torch, native):
                finished = cluster.wait(job)
                self.assertEqual((finished["state"], int(finished["generation"])), ("SUCCEEDED", 1), finished)
                self.assertNotIn("first_failure", finished)
            self.assertEqual(int(finished["summary"]["steps"]), 400)
            logs = cluster.muster("logs", torch).stdout.splitlines()
            steps = self.steps_in_log(cluster, torch, "node-1", 0)
            self.assertGreater(steps, healed)
            for rank in (0, 1):
                own = [line for line in logs if line.startswith(f"{rank}| ")]
                self.assertEqual(own, [f"{rank}| step {i + 1}" for i in range(steps)] + [f"{rank}| equal on 2 ranks"])

    def test_peer_reports_lost_lease(self):
        """A worker that is cut off from the coordinator, but not from another worker, ends its rank before the job
        runs elsewhere. Cut off together, they continue: the coordinator counts as dead."""
        script = """
            exec >> /tmp/generation-$MUSTER_GENERATION
            while :; do date +%s.%N; sleep 0.02; done"""
        with ApartCluster(nodes=2, coordinator_flags=["--lease=3s", "--job-lease=8s"]) as cluster:
            job = cluster.submit(shell_spec("alone", script, failure_timeout="1s"))
            cluster.wait_for_state(job, "RUNNING")
            coordinator, first, second = (cluster.machine(n) for n in ("coordinator", "node-1", "node-2"))

            def beats(machine, generation):
                path = machine.path(f"/tmp/generation-{generation}")
                return [float(line) for line in path.read_text().split()] if path.exists() else []

            wait_until(lambda: beats(first, 1), 10, "the rank on node-1")
            wait_until((cluster.data_dir("node-1") / "peers").exists, 10, "node-1 to know node-2")
            first.isolate()
            coordinator.isolate()  # node-2 still reaches both
            wait_until(lambda: len(beats(second, 2)) > 20, 40, "generation 2 on node-2")
            self.assertLess(beats(first, 1)[-1], beats(second, 2)[0])
            self.assertEqual(cluster.get(job)["first_failure"]["reason"], "NodeLost")

            coordinator.cut()
            cut = time.time()
            wait_until(lambda: time.time() > cut + 12, 20, "the lease to be over")
            self.assertGreater(beats(second, 2)[-1], cut + 11)
            coordinator.heal()
            cluster.muster("cancel", job, "--grace", "0s")
            cluster.wait(job, check=False, timeout=60)

    def test_partition_longer_than_lease(self):
        """The node is lost and its jobs are queued. The old ranks of the command have ended before; those of the training
        continue until the partition heals, and their results are ignored."""
        script = """
            echo generation $MUSTER_GENERATION
            [ $MUSTER_GENERATION = 1 ] || exit 0
            while :; do sleep 0.05; done"""
        with ApartCluster(nodes=2, slots=2, coordinator_flags=["--lease=3s", "--job-lease=6s"],
                          worker_flags=["--memory-dir=none"]) as cluster:
            command = cluster.submit(shell_spec("command", script, nodes=2, restart={"max": 3}, failure_timeout="6s"))
            native = cluster.submit(training_spec(
                "native", max_steps=450, checkpoint={"dir": "/tmp/checkpoints", "every_steps": 50},
                resources={"nodes": 2, "ranks_per_node": 1}, restart={"max": 3}, failure_timeout="6s",
                grace_period="2s"))
            cluster.wait_for_step(native, 120)
            cut, rest = cluster.machine("node-1"), cluster.machine("node-2")
            checkpoints = cut.path("/tmp/checkpoints")

            cut.cut()
            for job in (native, command):
                queued = cluster.wait_for_state(job, "QUEUED", timeout=30)
                self.assertEqual(queued["reason"], "NodeLost")
                self.assertIn("node-1", queued["message"])
            nodes = {n["name"]: n["state"] for n in cluster.nodes()}
            self.assertEqual(nodes, {"node-1": "LOST", "node-2": "READY"})
            self.assertEqual(cluster.rank_pids("node-2"), [])

            self.assertEqual([line for line in cut.processes().values() if "while :; do sleep 0.05" in line], [])
            stale = cluster.rank_pids("node-1")
            self.assertTrue(stale)
            before = {name.split(".")[0] for name in os.listdir(checkpoints)}

            cut.heal()
            wait_until(lambda: not alive(stale), 30, "the stale ranks to be ended")
            for job in (native, command):
                finished = cluster.wait(job)
                self.assertEqual((finished["state"], int(finished["generation"])), ("SUCCEEDED", 2), finished)
                self.assertEqual(int(finished.get("exit_code", 0)), 0)
                self.assertEqual(finished["first_failure"]["reason"], "NodeLost")
                self.assertEqual(finished["first_failure"]["node"], "node-1")
                self.assertEqual(len(cluster.describe(job)["past_failures"]), 1)
                if job == native:
                    self.assertEqual(int(finished["summary"]["steps"]), 450)
                    # Checkpoints published by the old generation are valid.
                    resumed = int(finished["summary"]["resumed_from_step"])
                    self.assertIn(f"step-{resumed:08}", before)
                    self.assertGreaterEqual(resumed, 100)
            self.assertEqual(sorted(cluster.muster("logs", command).stdout.splitlines()),
                             ["0| generation 2", "1| generation 2"])
            self.assertTrue((checkpoints / "step-00000450.g2").is_dir())
            self.assertEqual(sorted(rest.path("/tmp").glob("checkpoints")), [])


if __name__ == "__main__":
    unittest.main()
