"""Attacks without credentials on all ports: nodes stay ready, health checks are answered, memory is bounded."""

import pathlib
import re
import socket
import subprocess
import sys
import time
import unittest

from tests.faults import attacks
from tests.support.cluster import Cluster, lasting_ports, wait_until
from tests.support.joined_cluster import JoinedCluster

STRANGER = "127.0.0.2"
WORKER = "127.0.0.1"  # the workers' and the clients' own address
PROBE = "127.0.0.3"  # of who asks for /readyz: requests from the attacker's address may be reset
MAX_SECONDS = 1  # until /readyz is answered
MAX_HEARTBEAT_AGE = 5  # in seconds, with a heartbeat a second
MAX_GROWTH = 200 << 20  # of a daemon's memory, in bytes
MAX_LASTING_GROWTH = 64 << 20


def get(address, path):
    """The response to a GET, and the seconds that it took."""
    host, port = address.rsplit(":", 1)
    start = time.monotonic()
    with socket.create_connection((host, int(port)), timeout=10, source_address=(PROBE, 0)) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        response = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    return response.decode(), time.monotonic() - start


def resident_bytes(daemon):
    status = pathlib.Path(f"/proc/{daemon.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


class Attacks(unittest.TestCase):
    seconds = 4
    peer = ""  # the worker's address for gRPC

    @staticmethod
    def nodes(cluster):
        """Nodes by state, and the age of the oldest heartbeat."""
        metrics, _ = get(cluster.http, "/metrics")
        states = dict(re.findall(r'^muster_nodes{state="(\w+)"} (\d+)', metrics, re.M))
        ages = re.findall(r"^muster_node_heartbeat_age_seconds\S* (\S+)", metrics, re.M)
        counts = {state: int(count) for state, count in states.items()}
        return {**counts, "heartbeat age": max(map(float, ages), default=0)}

    def survive(self, cluster, daemon, kind, source):
        """Attacks a daemon of a cluster with one node."""
        port = daemon.addresses["http"] if kind.startswith("http") else daemon.addresses.get("grpc", self.peer)
        wait_until(lambda: self.nodes(cluster)["ready"] == 1, 10, "the node in the metrics")
        before = resident_bytes(daemon)
        slowest, oldest, most = 0, 0, before
        with subprocess.Popen([sys.executable, attacks.__file__, kind, port, source, str(self.seconds)],
                              stdout=subprocess.PIPE, text=True) as attacker:
            while attacker.poll() is None:
                response, seconds = get(daemon.addresses["http"], "/readyz")
                self.assertIn(" 200 ", response)
                slowest = max(slowest, seconds)
                nodes = self.nodes(cluster)
                self.assertEqual(nodes["ready"], 1)
                oldest = max(oldest, nodes["heartbeat age"])
                most = max(most, resident_bytes(daemon))
                time.sleep(0.05)
            self.assertEqual(attacker.returncode, 0)
            opened = attacker.stdout.read().strip()
        print(f"{kind} of {daemon.name} from {source}, {self.seconds} s: {opened} connections, /readyz {slowest:.2f} s,"
              f" heartbeat {oldest:.1f} s, {before >> 20} MB, at most {most >> 20} MB")
        self.assertLess(slowest, MAX_SECONDS)
        self.assertLess(oldest, MAX_HEARTBEAT_AGE)
        self.assertLess(most - before, MAX_GROWTH)
        wait_until(lambda: resident_bytes(daemon) - before < MAX_LASTING_GROWTH, 15, "the daemon to return memory")
        self.assertNotIn("session ended", cluster.coordinator.log())
        for line in (rf"from {source}[ ,]", rf"refused .* from ipv4:{source}:"):
            self.assertLessEqual(len(re.findall(line, daemon.log())), 1, daemon.log())

    def attack(self, kind, source):
        """Attacks both daemons."""
        self.peer = f"127.0.0.1:{lasting_ports(1).pop()}"
        with Cluster(nodes=1, worker_flags=[f"--peer-listen={self.peer}"]) as cluster:
            for daemon in (cluster.coordinator, cluster.workers["node-1"]):
                self.survive(cluster, daemon, kind, source)
                if kind in ("reset", "handshakes"):
                    self.assertIn(f"from {source} exceed their budget", daemon.log())


class AttacksTest(Attacks):
    def test_rapid_reset(self):
        self.attack("reset", STRANGER)

    def test_rapid_reset_from_the_address_of_a_worker(self):
        self.attack("reset", WORKER)

    def test_other_floods(self):
        for kind in ("headers", "handshakes"):
            with self.subTest(kind):
                self.attack(kind, STRANGER)

    def test_slow_http(self):
        self.attack("http-slow", WORKER)

    def test_idle_http(self):
        self.attack("http-idle", STRANGER)

    def test_large_http_headers(self):
        self.attack("http-headers", STRANGER)

    def test_tls(self):
        with JoinedCluster(nodes=1) as cluster:
            for kind in ("reset-tls", "handshakes-tls"):
                self.survive(cluster, cluster.coordinator, kind, STRANGER)


class AttacksLongTest(Attacks):
    seconds = 60

    def test_all(self):
        for source in (STRANGER, WORKER):
            for kind in attacks.KINDS:
                with self.subTest(kind=kind, source=source):
                    self.attack(kind, source)


if __name__ == "__main__":
    unittest.main()
