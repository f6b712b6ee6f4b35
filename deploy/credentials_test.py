"""deploy/credentials.sh: a cluster that uses what it writes."""

import pathlib
import shutil
import socket
import subprocess
import tempfile
import unittest

from tests.support.cluster import Cluster

SCRIPT = pathlib.Path("deploy/credentials.sh").absolute()


class IssuedCluster(Cluster):
    """A cluster whose daemons read the files of the script instead of flags."""

    def __enter__(self):
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            self.port = server.getsockname()[1]
        self.folder = self.directory / "credentials"
        self.issue("node-1", "node-2")
        return super().__enter__()

    def issue(self, *nodes):
        subprocess.run([SCRIPT, self.folder, "127.0.0.1,localhost", *nodes], check=True, stdout=subprocess.DEVNULL)
        # Each machine has its folder as /etc/muster.
        for path in (self.folder / "coordinator/coordinator", self.folder / "admin/config",
                     *self.folder.glob("nodes/*/worker")):
            text = path.read_text().replace("/etc/muster", str(path.parent)).replace(":7070", f":{self.port}")
            path.write_text(text.replace("0.0.0.0", "127.0.0.1"))

    def _start(self, name, site, program, *flags):
        config = self.folder / ("coordinator/coordinator" if name == "coordinator" else f"nodes/{name}/worker")
        kept = [flag for flag in flags if flag.startswith(("--http", "--slots"))]
        return super()._start(name, site, program, f"--config={config}", *kept)

    def client_env(self):
        return dict(self.environment(), MUSTER_CONFIG=str(self.folder / "admin/config"))


class CredentialsTest(unittest.TestCase):
    def test_cluster_uses_them_and_nodes_are_added(self):
        cluster = self.enterContext(IssuedCluster(nodes=2))
        result = cluster.muster("run", "--nodes", "2", "--", "/bin/sh", "-c", "echo on $MUSTER_NODE_NAME")
        self.assertIn("on node-2", result.stdout)

        before = (cluster.folder / "coordinator/tokens").read_text()
        with open(cluster.folder / "coordinator/coordinator", "a") as settings:
            settings.write("keep-jobs=77\n")
        cluster.issue("node-3")
        self.assertIn("keep-jobs=77\n", (cluster.folder / "coordinator/coordinator").read_text())
        self.assertEqual((cluster.folder / "coordinator/tokens").read_text(), before)
        cluster.start_worker("node-3")
        cluster.wait_for_nodes(3)

    def test_secrets_are_private(self):
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        subprocess.run([SCRIPT, folder, "coordinator", "node-1"], check=True, stdout=subprocess.DEVNULL)
        for path in folder.rglob("*"):
            self.assertEqual(path.stat().st_mode & 0o077, 0, path)


if __name__ == "__main__":
    unittest.main()
