"""Authentication and TLS: accepted tokens and certificates, and the messages on rejection."""

import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import unittest

from tests.support.certificates import Authority
from tests.support.cluster import Cluster, Daemon, binary, shell_spec, wait_until

NOT_ALLOWED = 77
NO_COORDINATOR = 69


class Certificates:
    """Two independent certificate authorities, and the certificates used by the tests."""

    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="muster-ca."))
        ours, theirs = Authority(self.directory / "ours"), Authority(self.directory / "theirs")

        def show(authority, name, *addresses, **kwargs):
            cert, key = authority.issue(name, *addresses, **kwargs)
            return [f"--tls-cert={cert}", f"--tls-key={key}"]

        self.ca = f"--tls-ca={ours.certificate}"
        self.other_ca = f"--tls-ca={theirs.certificate}"
        self.server = show(ours, "coordinator", "127.0.0.1")
        self.elsewhere = show(ours, "elsewhere.example")
        self.expired = show(ours, "expired", "127.0.0.1", days=-1)
        self.client = show(ours, "client")
        self.foreign_client = show(theirs, "client")
        self.foreign_server = show(theirs, "coordinator", "127.0.0.1")


def install(directory, flags):
    """Copies the files of these flags to `directory`/ca, cert and key. Each is written to a temporary file and renamed,
    the key last, so that no program reads a partial file."""
    for flag in flags:
        name, source = flag.split("=")
        beside = pathlib.Path(directory) / "new"
        beside.write_bytes(pathlib.Path(source).read_bytes())
        beside.chmod(0o600)
        beside.rename(f"{directory}/{name[6:]}")


class TlsCluster(Cluster):
    """A cluster whose clients use TLS; flags of a test's own calls come later and take precedence."""

    def __init__(self, server_flags, client_flags, **kwargs):
        super().__init__(coordinator_flags=server_flags, worker_flags=client_flags, **kwargs)
        self.client_flags = list(client_flags)

    def wait_for_nodes(self, count, timeout=15):
        if count > 0:
            super().wait_for_nodes(count, timeout)

    def command(self, *args):
        return [binary("cli/muster"), *self.client_flags, *map(str, args)]


class SecurityTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.certificates = Certificates()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.certificates.directory)

    def refused(self, cluster, *args, env=None, status=NOT_ALLOWED):
        """Checks the exit status and that stderr is one line; returns the line."""
        process = subprocess.run([binary("cli/muster"), *args], env={**cluster.client_env(), **(env or {})},
                                 capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual(process.returncode, status, process.stderr)
        self.assertEqual(process.stdout, "")
        self.assertEqual(len(process.stderr.splitlines()), 1, process.stderr)
        return process.stderr

    def worker_refused(self, cluster, *flags, env=None, status=NOT_ALLOWED):
        """Runs a worker until it exits and returns its last log line."""
        name = "refused"
        process = subprocess.run(
            [binary("worker/muster-worker"), f"--coordinator={cluster.address}", f"--name={name}", "--http=127.0.0.1:0",
             f"--data-dir={cluster.directory / name}", *flags],
            env={**cluster.environment(), **(env or {})}, capture_output=True, text=True, timeout=60,
            stdin=subprocess.DEVNULL)
        self.assertEqual(process.returncode, status, process.stderr)
        return process.stderr.splitlines()[-1]

    def write(self, cluster, name, text, mode=0o600):
        path = cluster.directory / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    # ---- tokens

    def test_only_valid_token_is_accepted(self):
        with Cluster(nodes=1) as cluster:
            token_file = cluster.directory / "coordinator" / "token"
            self.assertEqual(token_file.stat().st_mode & 0o777, 0o600)
            token = token_file.read_text().strip()
            port = cluster.address.rsplit(":", 1)[1]
            self.assertEqual([f.name for f in (cluster.directory / "tokens").iterdir()], [cluster.address])
            # By any name of the host.
            for address in (f"localhost:{port}", f"127.0.0.1:{port}"):
                cluster.muster("--coordinator", address, "node", "list")
            nowhere = {"MUSTER_TOKEN_DIR": str(cluster.directory / "nowhere")}
            line = self.refused(cluster, "list", env=nowhere)
            self.assertRegex(line, f"coordinator at {cluster.address} requires a token, but none was found.*"
                                   "--token-file")
            line = self.refused(cluster, "list", env={"MUSTER_TOKEN": "0123456789abcdef"})
            self.assertIn("rejected the token in MUSTER_TOKEN", line)
            wrong = self.write(cluster, "wrong", "0123456789abcdef\n")
            self.assertIn(f"rejected the token in {wrong}", self.refused(cluster, "list", "--token-file", wrong))
            self.write(cluster, "wrong", token, 0o644)
            self.assertIn(f"chmod 600 {wrong}", self.refused(cluster, "list", "--token-file", wrong))
            # Every way to supply the valid token.
            given = self.write(cluster, "given", f"# mine\n{token}\n")
            for env in ({"MUSTER_TOKEN": token}, {"MUSTER_TOKEN_FILE": given}):
                subprocess.run([binary("cli/muster"), "list"], env={**cluster.client_env(), **nowhere, **env},
                               check=True, capture_output=True)
            line = self.worker_refused(cluster, env=nowhere)
            self.assertIn("not retrying: the coordinator at", line)
            self.assertRegex(cluster.coordinator.log(), r"refused \w+ from ipv4:127.0.0.1:\d+: the call has no token")
        # After a normal exit nothing is left.
        self.assertFalse(cluster.directory.exists())

    def test_token_persists_and_is_not_sent_to_impostor(self):
        with Cluster(nodes=1) as cluster:
            token = (cluster.directory / "coordinator" / "token").read_text()
            cluster.workers.pop("node-1").stop()
            cluster.coordinator.kill()
            left = cluster.directory / "tokens" / cluster.address
            self.assertTrue(left.exists())
            # A process that takes over the port does not receive the token.
            host, port = cluster.address.rsplit(":", 1)
            with socket.create_server((host, int(port)), backlog=8) as thief:
                thief.settimeout(20)
                process = cluster.popen("list")
                connection, _ = thief.accept()
                with connection:
                    connection.settimeout(2)
                    # Acts as an HTTP/2 server that accepts all input.
                    heard = connection.recv(1 << 16)
                    connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
                    with contextlib.suppress(TimeoutError, ConnectionError):
                        while more := connection.recv(1 << 16):
                            heard += more
                self.assertIn(b"HTTP/2.0", heard)
                self.assertIn(b"ClusterService", heard)
                # gRPC sends header values uncompressed.
                self.assertNotIn(b"Bearer", heard)
                self.assertNotIn(token.strip().encode(), heard)
                process.kill()
                process.communicate()
            cluster.start_coordinator()
            self.assertEqual((cluster.directory / "coordinator" / "token").read_text(), token)
            cluster.start_worker("node-1")
            cluster.wait_for_nodes(1)

    def test_roles(self):
        tokens = {role: f"{role}-0123456789abcdef" for role in ("view", "submit", "admin", "worker")}
        with tempfile.TemporaryDirectory(prefix="muster-tokens.") as directory:
            path = pathlib.Path(directory) / "tokens"
            path.write_text("".join(f"{role} {token} {role}er\n" for role, token in tokens.items()))
            path.chmod(0o600)
            with Cluster(coordinator_flags=[f"--tokens={path}"]) as cluster:
                def env(role):
                    return {"MUSTER_TOKEN": tokens[role]}

                def allowed(role, *args):
                    return subprocess.run([binary("cli/muster"), *args], env={**cluster.client_env(), **env(role)},
                                          check=True, capture_output=True, text=True).stdout

                worker_token = self.write(cluster, "worker-token", tokens["worker"])
                cluster.start_worker("node-1", flags=[f"--token-file={worker_token}"])
                cluster.wait_for_nodes(1)
                spec = cluster.write_spec(shell_spec("hello", "echo hello"))
                allowed("view", "list")
                line = self.refused(cluster, "submit", spec, env=env("view"))
                self.assertIn("SubmitJob requires role submit, but token 'viewer' has role view", line)
                allowed("submit", "run", spec)
                line = self.refused(cluster, "list", env=env("worker"))
                self.assertIn("requires role view", line)
                line = self.worker_refused(cluster, env=env("submit"))
                self.assertIn("Session requires role worker", line)
                # A removed token is rejected, and a malformed file changes nothing.
                path.write_text("view\n")
                wait_until(lambda: allowed("view", "list") is not None and
                           re.search(r"tokens:1: expected ROLE TOKEN", cluster.coordinator.log()), 20,
                           "the mistake in the log")
                path.write_text(f"submit {tokens['submit']}\n")
                wait_until(lambda: subprocess.run([binary("cli/muster"), "list"], capture_output=True,
                                                  env={**cluster.client_env(), **env("view")}).returncode == NOT_ALLOWED,
                           20, "the removed token to be rejected")
            process = subprocess.run([binary("coordinator/muster-coordinator"), "--listen=127.0.0.1:0",
                                      "--http=127.0.0.1:0", "--store=memory", f"--tokens={directory}/none"],
                                     capture_output=True, text=True, timeout=30)
            self.assertNotEqual(process.returncode, 0)
            self.assertIn(f"{directory}/none: No such file", process.stderr)

    # ---- TLS

    def test_runs_job_over_mutual_tls(self):
        own = self.certificates
        with TlsCluster([*own.server, own.ca], [own.ca, *own.client], nodes=2) as cluster:
            spec = shell_spec("hello", "echo $RANK of $WORLD_SIZE")
            spec["resources"]["nodes"] = 2
            job = cluster.submit(spec)
            self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
            self.assertIn("1 of 2", cluster.muster("logs", job, "--rank", "1").stdout)
            # A certificate alone does not authorize a client.
            nowhere = {"MUSTER_TOKEN_DIR": str(cluster.directory / "nowhere")}
            self.assertIn("requires a token", self.refused(cluster, "list", own.ca, *own.client, env=nowhere))
            line = self.refused(cluster, "list", own.ca)
            self.assertIn("requires a client certificate", line)
            self.assertIn("rejected the client certificate",
                          self.refused(cluster, "list", own.ca, *own.foreign_client))
            self.assertIn("expired on", self.refused(cluster, "list", own.ca, *own.expired))
            self.assertIn("serves TLS, but this client uses plaintext", self.refused(cluster, "list"))
            self.assertIn("requires a client certificate", self.worker_refused(cluster, own.ca))

    def test_client_verifies_server_certificate(self):
        own = self.certificates
        with TlsCluster(own.server, [own.ca], nodes=1) as cluster:
            line = self.refused(cluster, "list", own.other_ca)
            self.assertIn("is not signed by the CA in", line)
            self.assertIn("is not signed by the CA in", self.worker_refused(cluster, own.other_ca))
            self.assertIn("serves TLS", self.worker_refused(cluster))
            missing = self.refused(cluster, "list", "--tls-ca=/nowhere/ca.pem")
            self.assertIn("--tls-ca: read /nowhere/ca.pem: No such file", missing)
        with TlsCluster(own.elsewhere, [own.ca]) as cluster:
            line = self.refused(cluster, "list", own.ca)
            self.assertIn("is valid for elsewhere.example, not for 127.0.0.1", line)

    def test_reloads_replaced_certificates(self):
        """The coordinator reloads new files without a restart, valid or expired; clients report the problem."""
        own = self.certificates
        with tempfile.TemporaryDirectory(prefix="muster-tls.") as directory:
            install(directory, own.server)
            with TlsCluster([f"--tls-cert={directory}/cert", f"--tls-key={directory}/key"], [own.ca]) as cluster:
                cluster.muster("list")
                install(directory, own.expired)
                line = wait_until(lambda: (r := cluster.muster("list", check=False)).returncode and r, 40,
                                  "the expired certificate in use")
                self.assertEqual(line.returncode, NOT_ALLOWED, line.stderr)
                self.assertRegex(line.stderr, r"certificate of the coordinator at \S+ expired on \d{4}-")
                install(directory, own.server)
                wait_until(lambda: cluster.muster("list", check=False).returncode == 0, 40, "the new one in use")

    def test_logs_execs_and_copies_after_all_certificates_were_replaced(self):
        """A worker uses the new files for every connection, also for those that it opened with the old ones."""
        own = self.certificates
        with tempfile.TemporaryDirectory(prefix="muster-tls.") as directory:
            server, client = pathlib.Path(directory) / "server", pathlib.Path(directory) / "client"
            server.mkdir()
            client.mkdir()

            def flags(folder):
                return [f"--tls-ca={folder}/ca", f"--tls-cert={folder}/cert", f"--tls-key={folder}/key"]

            install(server, [own.ca, *own.server])
            install(client, [own.ca, *own.client])
            with TlsCluster(flags(server), flags(client), nodes=1) as cluster:
                job = cluster.submit(shell_spec("waits", "echo written; echo data > file; sleep 600"))

                def check():
                    wait_until(lambda: "written" in cluster.muster("logs", job, timeout=30).stdout, 30, "the log")
                    self.assertEqual(cluster.muster("exec", job, "--", "echo", "hello", timeout=30).stdout, "hello\n")
                    self.assertEqual(cluster.muster("cp", f"{job}:file", "-", timeout=30).stdout, "data\n")

                cluster.wait_for_state(job, "RUNNING")
                check()
                install(server, [own.other_ca, *own.foreign_server])
                install(client, [own.other_ca, *own.foreign_client])
                cluster.coordinator.kill()
                cluster.start_coordinator()
                cluster.wait_for_nodes(1)
                check()
                cluster.muster("cancel", job, "--grace", "0s")

    def test_plaintext_and_unreachable_coordinator(self):
        own = self.certificates
        with Cluster() as cluster:
            line = self.refused(cluster, "list", own.ca)
            self.assertIn("serves plaintext, but --tls-ca requires TLS", line)
            self.assertIn("serves plaintext", self.worker_refused(cluster, own.ca))
            with socket.create_server(("127.0.0.1", 0)) as free:
                address = f"127.0.0.1:{free.getsockname()[1]}"
            for flags in ([], [own.ca]):
                self.assertIn(f"no coordinator at {address}",
                              self.refused(cluster, "--coordinator", address, "list", *flags, status=NO_COORDINATOR))

    def test_coordinator_rejects_invalid_tls_flags(self):
        own = self.certificates

        def usage(*flags):
            process = subprocess.run([binary("coordinator/muster-coordinator"), "--http=127.0.0.1:0", "--store=memory",
                                      *flags], capture_output=True, text=True, timeout=30)
            self.assertEqual(process.returncode, 2, process.stderr)
            return process.stderr

        self.assertIn("--insecure-bind", usage("--listen=0.0.0.0:0"))
        self.assertIn("--tls-cert needs --tls-key", usage(own.server[0]))
        self.assertIn("--tls-ca requires --tls-cert", usage(own.ca))
        self.assertIn("is not the key of the certificate", usage(own.server[0], own.client[1]))
        self.assertIn("expired on", usage(*own.expired))
        self.assertIn("is not a PEM certificate", usage("--tls-cert=/etc/hostname", own.server[1]))
        with tempfile.TemporaryDirectory() as directory:
            tokens = {"MUSTER_TOKEN_DIR": directory}
            daemon = Daemon("coordinator", [binary("coordinator/muster-coordinator"), "--listen=0.0.0.0:0",
                                            "--http=127.0.0.1:0", "--store=memory", *own.server],
                            pathlib.Path(directory), dict(os.environ, **tokens))
            self.assertTrue(daemon.addresses["grpc"].startswith("0.0.0.0:"))
            daemon.stop()


if __name__ == "__main__":
    unittest.main()
