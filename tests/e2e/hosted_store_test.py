"""Hosted c10d store: PyTorch's store beside the ranks of node 0, which outlives the daemons and names who it waits for."""

import contextlib
import os
import re
import socket
import subprocess
import unittest

from tests.support.cluster import ROOT, Cluster, command_spec, wait_until

SCRIPT = str(ROOT / "tests/e2e/ddp_fashion_mnist.py")
HOSTED = {"MUSTER_HOSTED_STORE": "1"}

# Uses the store again after a file has appeared.
LATE_GROUP = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
print("initialized", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.05)
group = dist.new_group()
ones = torch.ones(1)
dist.all_reduce(ones, group=group)
print("sum", int(ones), flush=True)
"""

# Rank 2 does not call init_process_group.
ABSENT = """
import os, sys, time, torch.distributed as dist
if os.environ["RANK"] == "2":
    while not os.path.exists(sys.argv[1]): time.sleep(0.05)
dist.init_process_group("gloo")
print("initialized", flush=True)
"""

# Rank 1 does not arrive at the end of new_group, and rank 2 does not set its key.
MISSING_KEY = """
import os, sys, time, torch.distributed as dist
def await_file(name):
    while not os.path.exists(sys.argv[1] + name): time.sleep(0.05)
dist.init_process_group("gloo")
rank = dist.get_rank()
store = dist.distributed_c10d._get_default_store()
if rank == 2: await_file("-key")
store.set(f"part/{rank}", "x")
for other in range(3): store.get(f"part/{other}")
print("exchanged", flush=True)
if rank == 1: await_file("-group")
dist.new_group([0])
"""

# All ranks are clients of a store of their own protocol; no PyTorch.
OTHER_PROTOCOL = """
import os, socket
with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as client:
    client.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n" if os.environ["RANK"] == "1" else b"")
    if os.environ["RANK"] == "1": print("received", client.recv(100), flush=True)
"""

TCP = """
import sys, os, torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=sys.argv[1].format(**os.environ), rank=rank, world_size=world)
ones = torch.ones(1)
dist.all_reduce(ones)
print("sum", int(ones), flush=True)
"""


class StoreTests:
    """Tests that hold for every PyTorch; `python` is its interpreter."""

    python = ""

    def setUp(self):
        self.cluster = self.enterContext(Cluster(nodes=2, slots=8))

    def submit(self, name, script, *arguments, nodes=1, ranks=3, env=HOSTED):
        command = [script] if script.endswith(".py") else ["-c", script]
        return self.cluster.submit(command_spec(name, self.python, *command, *arguments, nodes=nodes, ranks=ranks,
                                                env=env))

    def path(self, name):
        return self.cluster.directory / name

    def logs(self, job, rank):
        return self.cluster.muster("logs", job, "--rank", rank).stdout

    def why(self, job):
        return self.cluster.muster("why", job).stdout

    def wait_for_log(self, job, rank, text):
        wait_until(lambda: text in self.logs(job, rank), 60, f"{text} of rank {rank}")

    def wait_for_wait(self, job, pattern):
        """The ranks that the job waits for, once a wait's description matches the pattern."""
        def find():
            return next((w for w in self.cluster.get(job).get("waits", []) if re.search(pattern, w["what"])), None)
        wait = wait_until(find, 60, f"{job} to wait for {pattern}")
        return [int(who["rank"]) for who in wait["missing"]]

    def succeed(self, *jobs):
        for job in jobs:
            finished = self.cluster.wait(job)
            self.assertEqual((finished["state"], int(finished.get("restarts", 0))), ("SUCCEEDED", 0), finished)

    def stores(self):
        return [pid for pid, command in self.cluster.processes()
                if command.split()[0].endswith("muster-c10d-store")]

    def test_store_outlives_daemons(self):
        """Ranks train while the worker of node 0 and the coordinator are killed, and use the store afterwards."""
        train = self.submit("train", SCRIPT, "--images", "4096", "--epochs", "4", nodes=2, ranks=1)
        group = self.submit("group", LATE_GROUP, str(self.path("go")), nodes=2, ranks=1)
        self.wait_for_log(train, 0, "step 3 ")
        self.wait_for_log(group, 0, "initialized")
        before = self.stores()
        self.assertEqual(len(before), 2)
        first = next(r["node"] for r in self.cluster.describe(train)["ranks"] if int(r.get("rank", 0)) == 0)
        self.cluster.workers[first].kill()
        self.cluster.coordinator.kill()
        self.cluster.start_coordinator()
        self.cluster.start_worker(first, 8)
        self.cluster.wait_for_nodes(2)
        self.assertEqual(self.cluster.get(train)["state"], "RUNNING")
        self.assertEqual(self.stores(), before)
        self.path("go").touch()
        self.succeed(group, train)
        self.assertIn("sum 2", self.logs(group, 1))
        wait_until(lambda: not self.stores(), 5, "the stores to end with their generations")

    def test_names_ranks_that_store_waits_for(self):
        absent = self.submit("absent", ABSENT, str(self.path("go")))
        # PyTorch 2 has a barrier there only on request.
        missing = self.submit("missing", MISSING_KEY, str(self.path("go")), ranks=3,
                              env={**HOSTED, "TORCH_DIST_INIT_BARRIER": "1"})
        self.assertEqual(self.wait_for_wait(absent, r'c10d key "\S+" .*\(awaited by ranks 0 and 1'), [2])
        self.assertRegex(self.why(absent),
                         r'Waiting for c10d key "\S+" .*\(awaited by ranks 0 and 1.*; missing:\n\s+rank 2 on node-')
        self.wait_for_log(absent, 0, "muster: c10d key")
        self.assertRegex(self.logs(absent, 0), r"muster: c10d key .* has waited \d+\.\d s for rank 2 \(node ")
        self.path("go").touch()

        series = r'part/2" \(awaited by ranks 0 and 1; ranks 0 and 1 have set theirs, rank 2 has not\)'
        self.assertEqual(self.wait_for_wait(missing, series), [2])
        self.path("go-key").touch()
        self.assertEqual(self.wait_for_wait(missing, r"c10d barrier .* \(2 of 3 have arrived: ranks 0 and 2\)"), [1])
        self.path("go-group").touch()
        self.succeed(absent, missing)

    def test_tcp_init_method(self):
        """A job may still serve its own store, and tcp:// may name the hosted one."""
        own = self.submit("own", TCP, "tcp://{MASTER_ADDR}:{MASTER_PORT}", ranks=1, env={})
        hosted = self.submit("hosted", TCP, "tcp://{MASTER_ADDR}:{MASTER_PORT}", ranks=2)
        self.succeed(own, hosted)
        self.assertIn("sum 1", self.logs(own, 0))
        self.assertIn("sum 2", self.logs(hosted, 0))


class DebianPyTorchTest(StoreTests, unittest.TestCase):
    python = "/usr/bin/python3"  # the interpreter for which python3-torch is installed

    def test_other_protocol_is_refused(self):
        job = self.submit("other", OTHER_PROTOCOL, ranks=2)
        self.succeed(job)
        problem = "rank 1: disconnected from the c10d store: it sent a request of type 71 without the greeting"
        description = self.cluster.muster("describe", job, "--events").stdout
        self.assertIn(problem, description)
        self.assertIn("received b''", self.logs(job, 1))

    def test_lost_store_is_reported(self):
        job = self.submit("lost", "import os, time\nwhile not os.path.exists('{}'): time.sleep(0.05)".format(
            self.path("go")), ranks=1)
        self.cluster.wait_for_state(job, "RUNNING")
        store, = self.stores()
        os.kill(store, 9)
        wait_until(lambda: "the hosted c10d store has ended: signal 9" in self.cluster.muster("describe", job).stdout,
                   10, "a warning")
        self.path("go").touch()
        self.succeed(job)


class CurrentPyTorchTest(StoreTests, unittest.TestCase):
    """PyPI's PyTorch, of the environment that tests/bench/peers/setup.sh makes or of MUSTER_TORCH_PYTHON."""

    python = os.environ.get("MUSTER_TORCH_PYTHON", str(ROOT / ".venv/bin/python"))

    @classmethod
    def setUpClass(cls):
        version = ""
        with contextlib.suppress(OSError):
            version = subprocess.run([cls.python, "-c", "import torch; print(torch.__version__)"], text=True,
                                     capture_output=True, check=False).stdout
        if not version.startswith("2."):
            raise unittest.SkipTest(f"{cls.python} has no PyTorch 2; run tests/bench/peers/setup.sh")

    def test_store_of_its_own(self):
        """With an address other than MASTER_ADDR:MASTER_PORT, rank 0 serves the store in spite of the hosted one."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        job = self.submit("own-port", TCP, f"tcp://127.0.0.1:{port}", ranks=2)
        self.succeed(job)
        self.assertIn("sum 2", self.logs(job, 1))

    def test_all_requests(self):
        """Each method of torch.distributed.TCPStore against the hosted store."""
        job = self.submit("requests", ALL_REQUESTS, ranks=2)
        self.succeed(job)
        for rank in range(2):
            self.assertIn("all requests answered", self.logs(job, rank))


ALL_REQUESTS = """
import os
from datetime import timedelta
from torch.distributed import TCPStore
rank = int(os.environ["RANK"])
store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2, False, timedelta(seconds=20))
store.set(f"set-{rank}", "value")
assert store.get(f"set-{1 - rank}") == b"value"
assert store.check([f"set-{rank}"]) and not store.check(["none"])
store.add("sum", rank + 1)
store.wait(["sum", "set-0"])
assert store.compare_set(f"compare-{rank}", "", "first") == b"first"
assert store.compare_set(f"compare-{rank}", "other", "second") == b"first"
store.append(f"append-{rank}", "a")
store.append(f"append-{rank}", "b")
assert store.get(f"append-{rank}") == b"ab"
store.multi_set([f"m-{rank}", f"n-{rank}"], ["1", "2"])
assert store.multi_get([f"m-{rank}", f"n-{rank}"]) == [b"1", b"2"]
assert store.num_keys() >= 6
assert store.delete_key(f"m-{rank}") and not store.delete_key(f"m-{rank}")
try:
    store.wait(["never"], timedelta(milliseconds=100))
    raise AssertionError("never was set")
except Exception as error:
    assert "never" in str(error), error
store.queue_push(f"queue-{rank}", "first")
assert store.queue_len(f"queue-{rank}") == 1
assert store.queue_pop(f"queue-{rank}") == b"first"
if hasattr(store, "list_keys"): assert f"set-{rank}" in store.list_keys()
if hasattr(store, "barrier"): store.barrier("both", 2, timedelta(seconds=20))
large = "x" * (4 << 20)
store.set(f"large-{rank}", large)
assert store.get(f"large-{1 - rank}") == large.encode()
print("all requests answered", flush=True)
"""

if __name__ == "__main__":
    unittest.main()
