"""kill -9 of shims on a node without control groups: no slot is used while processes of its rank live."""

import os
import signal
import unittest

from tests.support import namespaces
from tests.support.cluster import Cluster, shell_spec, wait_until

WHY_NO_MOUNTS = namespaces.why_not()
# The first generation leaves a process without its environment, session and parent; the second looks for it.
SCRIPT = """
if [ -e {file} ]; then
  read -r pid < {file}
  if [ -e /proc/$pid/exe ]; then  # a zombie has none
    echo "$pid still lives"
    exit 1
  fi
  exit 0
fi
(env -i setsid bash -c 'echo $$ > {file}.new; mv {file}.new {file}; exec sleep 1000' &)
exec sleep 1000
"""


@unittest.skipIf(WHY_NO_MOUNTS, WHY_NO_MOUNTS)
class OrphanTest(unittest.TestCase):
    def setUp(self):
        self.cluster = self.enterContext(Cluster())
        hidden = self.cluster.resources.enter_context(namespaces.Mounts("mount -t tmpfs tmpfs /sys/fs/cgroup"))
        self.prefix = hidden.prefix()
        self.start_worker()
        file = self.cluster.directory / "orphan"
        self.job = self.cluster.submit(shell_spec("job", SCRIPT.format(file=file), restart={"max": 1},
                                                  failure_timeout="20s"))
        wait_until(file.exists, 20, "the process")
        self.orphan = int(file.read_text())

    def start_worker(self):
        self.cluster.start_worker("node-1", prefix=self.prefix)
        self.cluster.wait_for_nodes(1)

    def kill_shim(self):
        rank = int(self.cluster.describe(self.job)["ranks"][0]["pid"])
        with open(f"/proc/{rank}/stat", encoding="utf-8") as stat:
            shim = int(stat.read().rsplit(")", 1)[1].split()[1])
        os.kill(shim, signal.SIGKILL)

    def check_end(self):
        job = self.cluster.wait(self.job)
        self.assertEqual((job["state"], int(job["generation"])), ("SUCCEEDED", 2), job)
        self.assertFalse(os.path.exists(f"/proc/{self.orphan}/exe"))

    def test_killed_shim(self):
        self.kill_shim()
        self.check_end()

    def test_killed_worker_and_shim(self):
        self.cluster.workers["node-1"].kill()
        self.kill_shim()
        self.start_worker()
        self.check_end()


if __name__ == "__main__":
    unittest.main()
