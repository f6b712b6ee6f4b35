"""Identities of nodes: a cluster is made and joined with one line per machine, and a node can be no other."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import time
import unittest

from tests.support import namespaces
from tests.support.apart import BIN, PROGRAMS
from tests.support.cluster import Daemon, binary, shell_spec, wait_until
from tests.support.joined_cluster import JoinedCluster

NOT_ALLOWED = 77
CANNOT_CREATE = 73


def certificate(path):
    """Serial number and end of validity, as openssl prints them."""
    return subprocess.run(["openssl", "x509", "-noout", "-serial", "-enddate", "-in", path], check=True,
                          capture_output=True, text=True).stdout


class IdentityTest(unittest.TestCase):
    def test_three_nodes_from_nothing_to_a_job(self):
        begin = time.monotonic()
        cluster = self.enterContext(JoinedCluster(nodes=3))
        result = cluster.muster("run", "--nodes", "3", "--", "/bin/sh", "-c", "echo on $MUSTER_NODE_NAME")
        print(f"from cluster init to the end of a job on three nodes: {time.monotonic() - begin:.1f} s")
        for node in ("node-1", "node-2", "node-3"):
            self.assertIn(f"on {node}", result.stdout)
        # The settings are all that the daemons need.
        for name in ("coordinator", "node-1"):
            self.assertIn("tls-cert=", cluster.config(name).read_text())
        for path in cluster.directory.rglob("*.key"):
            self.assertEqual(path.stat().st_mode & 0o077, 0, path)

        # Called again, both keep everything.
        before = {path: path.read_bytes() for path in cluster.directory.rglob("identity/*")}
        self.assertIn("kept", cluster.init().stderr)
        self.assertIn("has joined already", cluster.join("node-1").stdout)
        self.assertEqual({path: path.read_bytes() for path in cluster.directory.rglob("identity/*")}, before)

        entries = [entry for entry in cluster.audit() if entry["method"] == "EnrollNode"]
        self.assertEqual([(entry["node"], entry["code"]) for entry in entries],
                         [("node-1", "OK"), ("node-2", "OK"), ("node-3", "OK")])
        self.assertNotIn(cluster.join_command.split()[5], (cluster.directory / "coordinator/audit.log").read_text())

    def test_tokens_that_do_not_admit(self):
        cluster = self.enterContext(JoinedCluster())

        def refused(pattern, command, status=NOT_ALLOWED, **changes):
            result = cluster.join("node-1", command, check=False, **changes)
            self.assertEqual(result.returncode, status, result.stderr)
            self.assertRegex(result.stderr, pattern)
            self.assertFalse((cluster.directory / "node-1/identity/node.pem").exists())

        once = cluster.token()
        cluster.join("node-0", once)
        refused("is used up", once)
        token = cluster.token()
        listed = json.loads(cluster.muster("node", "token", "--list", "-o", "json").stdout)
        [unused] = [entry["id"] for entry in listed if entry["uses_left"] == 1]
        cluster.muster("node", "token", "--revoke", unused)
        refused("unknown or was revoked", token)
        refused("is for node gpu-1, not for node node-1",
                cluster.token("--node", "gpu-1").replace("--name gpu-1", ""))
        refused("has the pin", cluster.token(), ca_pin="sha256:" + 64 * "0")
        refused("is not a pin", cluster.token(), status=2, ca_pin="sha256:0")
        # The token reaches the store as a digest only.
        secret = token.split()[5]
        for path in (cluster.directory / "coordinator").iterdir():
            if path.is_file():
                self.assertNotIn(secret.encode(), path.read_bytes(), path)

    def test_token_expires_and_survives_a_restart(self):
        cluster = self.enterContext(JoinedCluster())
        lasting, short = cluster.token(), cluster.token("--expires", "1s")
        cluster.coordinator.kill()
        cluster.start_coordinator()
        wait_until(lambda: len(cluster.muster("node", "token", "--list", "-o", "name").stdout.split()) == 2, 10,
                   "the short token expires")  # the others: the lasting one, and that of init
        result = cluster.join("node-1", short, check=False)
        self.assertEqual(result.returncode, NOT_ALLOWED)
        self.assertIn("expired at", result.stderr)
        cluster.join("node-1", lasting)

    def test_another_server_gets_no_token(self):
        """A server that is not the coordinator sees a handshake and nothing else."""
        cluster = self.enterContext(JoinedCluster())
        other = self.enterContext(JoinedCluster())
        command = cluster.join_command.replace(f":{cluster.port} ", f":{other.port} ")
        result = cluster.join("node-1", command, check=False)
        self.assertEqual(result.returncode, NOT_ALLOWED, result.stderr)
        self.assertIn("another server has its address", result.stderr)
        path = other.directory / "coordinator/audit.log"
        self.assertFalse(path.exists() and path.read_text())

    def test_folders_of_people_work_where_they_are_moved(self):
        cluster = self.enterContext(JoinedCluster())
        for made in (cluster.issue_user("alice"), cluster.directory / "admin"):
            folder = cluster.directory / f"moved-{made.name}"
            made.rename(folder)
            cluster.local("list", "--config", folder / "config")

    def test_certificate_of_another_authority_does_not_connect(self):
        cluster = self.enterContext(JoinedCluster())
        other = self.enterContext(JoinedCluster())
        theirs = other.directory / "admin"
        result = cluster.muster("list", "--tls-cert", f"{theirs}/admin.pem", "--tls-key", f"{theirs}/admin.key",
                                check=False)
        self.assertEqual(result.returncode, NOT_ALLOWED, result.stderr)
        self.assertIn("rejected the client certificate", result.stderr)

    def test_files_of_another_cluster_are_kept(self):
        first = self.enterContext(JoinedCluster(nodes=1))
        second = self.enterContext(JoinedCluster())
        before = (first.directory / "node-1/identity/node.pem").read_bytes()
        result = first.join("node-1", second.join_command, check=False)
        self.assertEqual(result.returncode, CANNOT_CREATE, result.stderr)
        self.assertIn("belongs to another cluster", result.stderr)
        self.assertEqual((first.directory / "node-1/identity/node.pem").read_bytes(), before)

    def worker(self, cluster, identity, *flags):
        """Runs a worker with the identity of a node until it gives up."""
        folder = cluster.directory / identity / "identity"
        return subprocess.run(
            [binary("worker/muster-worker"), f"--coordinator=127.0.0.1:{cluster.port}", "--http=127.0.0.1:0",
             f"--data-dir={cluster.directory}/intruder", f"--tls-ca={folder}/ca.pem", f"--tls-cert={folder}/node.pem",
             f"--tls-key={folder}/node.key", *flags], env=cluster.environment(), capture_output=True, text=True,
            timeout=60, stdin=subprocess.DEVNULL)

    def test_node_is_no_other(self):
        cluster = self.enterContext(JoinedCluster())
        cluster.join("node-1")
        cluster.join("node-2")
        result = self.worker(cluster, "node-1", "--name=node-2")
        self.assertEqual(result.returncode, NOT_ALLOWED, result.stderr)
        self.assertIn("certificate of node node-1, but registers as node node-2", result.stderr)
        result = self.worker(cluster, "node-1", "--name=node-1", "--machine-id=another-machine")
        self.assertEqual(result.returncode, NOT_ALLOWED, result.stderr)
        self.assertIn("but the worker runs on machine another-machine", result.stderr)
        entry = [entry for entry in cluster.audit() if entry["method"] == "Session"][0]
        self.assertEqual((entry["user"], entry["node"], entry["code"]), ("node-1", "node-2", "PERMISSION_DENIED"))

        # A token of role worker, which any node may have, does not suffice for a name that has an identity.
        tokens = cluster.directory / "coordinator/identity/tokens"
        tokens.write_text(tokens.read_text() + f"worker {32 * 'w'} nodes\n")
        shared = cluster.directory / "shared"
        shared.write_text(32 * "w")
        shared.chmod(0o600)
        wait_until(lambda: "has role worker" in cluster.muster("list", "--token-file", shared, check=False).stderr, 10,
                   "the coordinator has reloaded its tokens")
        admin = cluster.directory / "admin"
        result = self.worker(cluster, "node-1", "--name=node-2", f"--token-file={shared}",
                             f"--tls-cert={admin}/admin.pem", f"--tls-key={admin}/admin.key")
        self.assertEqual(result.returncode, NOT_ALLOWED, result.stderr)
        self.assertIn("has not presented its certificate", result.stderr)

    def test_job_registers_no_node(self):
        """A job runs as the worker's user, so it can read the key of its node. No other name is open to it."""
        cluster = self.enterContext(JoinedCluster(nodes=1))
        folder = cluster.directory / "node-1/identity"
        worker = (f"{binary('worker/muster-worker')} --coordinator=127.0.0.1:{cluster.port} --http=127.0.0.1:0 "
                  f"--data-dir=$PWD/worker --tls-ca={folder}/ca.pem")
        job = cluster.submit(shell_spec("intruder", "\n".join((
            f"{worker} --name=node-2 --tls-cert={folder}/node.pem --tls-key={folder}/node.key; echo other $?",
            f"{worker} --name=node-3; echo without $?"))))
        self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
        output = cluster.muster("logs", job).stdout
        self.assertRegex(output, r"registers as node node-2(.|\n)*other 77\n")
        self.assertRegex(output, r"without 77\n")
        self.assertEqual([node["name"] for node in cluster.nodes()], ["node-1"])

    def test_client_without_certificate_may_only_join(self):
        cluster = self.enterContext(JoinedCluster())
        admin = cluster.directory / "admin"
        result = cluster.local("list", "--coordinator", f"127.0.0.1:{cluster.port}", "--tls-ca", f"{admin}/ca.pem",
                               "--token-file", f"{admin}/admin.token", check=False)
        self.assertEqual(result.returncode, NOT_ALLOWED, result.stderr)
        self.assertIn("requires a client certificate", result.stderr)
        # A node's certificate admits a worker, and nothing that only users may do.
        cluster.join("node-1")
        folder = cluster.directory / "node-1/identity"
        result = cluster.local("list", "--coordinator", f"127.0.0.1:{cluster.port}", "--tls-ca", f"{folder}/ca.pem",
                               "--tls-cert", f"{folder}/node.pem", "--tls-key", f"{folder}/node.key", check=False)
        self.assertEqual(result.returncode, NOT_ALLOWED, result.stderr)

    def test_removed_node_is_refused_until_it_joins_again(self):
        cluster = self.enterContext(JoinedCluster(nodes=1))
        cluster.workers.pop("node-1").stop()
        old = cluster.directory / "old"
        wait_until(lambda: cluster.muster("node", "remove", "node-1", check=False).returncode == 0, 30,
                   "the node is removed")
        cluster.coordinator.kill()
        cluster.start_coordinator()
        result = self.worker(cluster, "node-1", "--name=node-1")
        self.assertEqual(result.returncode, NOT_ALLOWED, result.stderr)
        self.assertIn("was revoked", result.stderr)
        (cluster.directory / "node-1/identity").rename(old)
        cluster.join("node-1", cluster.token())
        cluster.start_worker("node-1")
        cluster.wait_for_nodes(1)

    def test_evicted_node_loses_its_job_and_stays_out(self):
        cluster = self.enterContext(JoinedCluster(nodes=2, coordinator_flags=["--lease=3s", "--job-lease=3s"]))
        job = cluster.submit(shell_spec("steady", "sleep 600"))
        cluster.wait_for_state(job, "RUNNING")
        [evicted] = [rank["node"] for rank in cluster.describe(job)["ranks"]]
        [other] = {"node-1", "node-2"} - {evicted}
        refused = cluster.muster("node", "remove", evicted, check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(f"muster node remove {evicted} --force", refused.stderr)
        self.assertEqual(cluster.muster("node", "remove", evicted, "--force").stdout, f"{evicted} removed\n")
        wait_until(lambda: "was revoked" in cluster.workers[evicted].log(), 20, "the worker is refused")
        wait_until(lambda: [rank["node"] for rank in cluster.describe(job)["ranks"]] == [other], 60,
                   "the job starts again on the other node")
        self.assertEqual([node["name"] for node in cluster.nodes()], [other])
        cluster.muster("cancel", job, "--force")

        cluster.workers.pop(evicted).stop()
        (cluster.directory / evicted / "identity").rename(cluster.directory / "old")
        cluster.join(evicted, cluster.token())
        cluster.start_worker(evicted)
        cluster.wait_for_nodes(2)

    def test_certificate_is_renewed_while_a_job_runs(self):
        cluster = self.enterContext(JoinedCluster(nodes=1, coordinator_flags=["--certificate-validity=20s"]))
        path = cluster.directory / "node-1/identity/node.pem"
        key = (cluster.directory / "node-1/identity/node.key").read_bytes()
        first = certificate(path)
        end = cluster.directory / "end"
        job = cluster.submit(shell_spec("long", f"while [ ! -e {end} ]; do sleep 0.1; done"))
        cluster.wait_for_state(job, "RUNNING")
        wait_until(lambda: certificate(path) != first, 30, "the certificate is renewed")
        self.assertEqual((cluster.directory / "node-1/identity/node.key").read_bytes(), key)
        # After the first one's end, a new connection uses the present one.
        end_of_first = re.search(r"notAfter=(.*)", first).group(1)
        wait_until(lambda: time.time() > seconds_of(end_of_first), 40, "the first certificate's end")
        cluster.coordinator.kill()
        cluster.start_coordinator()
        cluster.wait_for_nodes(1)
        self.assertEqual(cluster.get(job)["generation"], 1)
        end.touch()
        self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
        renewals = [entry for entry in cluster.audit() if entry["method"] == "RenewCertificate"]
        self.assertEqual({(entry["user"], entry["code"]) for entry in renewals}, {("node-1", "OK")})


def seconds_of(text):
    """Seconds since 1970 of a date as openssl prints it."""
    return int(subprocess.run(["date", "-d", text, "+%s"], check=True, capture_output=True, text=True).stdout)


WHY_NOT_APART = namespaces.why_not()


@unittest.skipIf(WHY_NOT_APART, WHY_NOT_APART)
class ApartTest(unittest.TestCase):
    """Each daemon on a machine of its own, which shares only a network with the others."""

    def setUp(self):
        self.lab = self.enterContext(namespaces.Lab())
        self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def add(self, name):
        machine = self.lab.add(name)
        for program in PROGRAMS:
            machine.install(binary(program), f"{BIN}/{os.path.basename(program)}")
        return machine

    def environment(self):
        env = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "XDG_", "TMP"))}
        return dict(env, HOME="/tmp/home", PATH=f"{BIN}:{os.environ['PATH']}")

    def type(self, machine, *words):
        """Output of a command on the machine."""
        result = subprocess.run([*machine.prefix(), *words], env=self.environment(), text=True, timeout=60, check=False,
                                stdin=subprocess.DEVNULL, capture_output=True)
        self.assertEqual(result.returncode, 0, (words, result.stdout, result.stderr))
        return result.stdout

    def start(self, machine, program):
        settings = f"/tmp/{program}.conf"
        daemon = Daemon(machine.name, [f"{BIN}/{program}", f"--config={settings}", "--http=127.0.0.1:0"], self.directory,
                        self.environment(), machine.prefix())
        self.addCleanup(daemon.stop)

    def test_three_machines_from_nothing_to_a_job(self):
        head, *nodes = [self.add(name) for name in ("head", "gpu-1", "gpu-2", "gpu-3")]
        begin = time.monotonic()
        join = self.type(head, "muster", "cluster", "init", "--coordinator-config=/tmp/muster-coordinator.conf",
                         "--data-dir=/tmp/data", f"--names={head.address}")
        self.start(head, "muster-coordinator")
        for node in nodes:
            self.type(node, *shlex.split(join), "--worker-config=/tmp/muster-worker.conf", "--data-dir=/tmp/data")
            self.start(node, "muster-worker")
        output = self.type(head, "muster", "run", "--nodes", "3", "--", "/bin/hostname")
        print(f"from cluster init to the end of a job on three machines: {time.monotonic() - begin:.1f} s")
        for node in nodes:
            self.assertIn(f"| {node.name}", output)
        self.assertIn("gpu-2", self.type(head, "muster", "node", "list"))


if __name__ == "__main__":
    unittest.main()
