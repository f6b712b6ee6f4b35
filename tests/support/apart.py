"""A cluster whose coordinator and workers run on separate simulated machines that share only a network."""

import os
import pathlib
import secrets

from tests.support.certificates import Authority
from tests.support.cluster import Cluster, Site
from tests.support.daemon import binary
from tests.support.namespaces import Lab

PROGRAMS = ("cli/muster", "coordinator/muster-coordinator", "worker/muster-worker", "worker/muster-shim",
            "worker/muster-c10d-store", "worker/muster-mpi", "trainer/muster-rank")
# Paths in each machine's own /tmp.
BIN = "/tmp/bin"
DATA = pathlib.Path("/tmp/data")
TLS = "/tmp/tls"


class ApartCluster(Cluster):
    """Like Cluster, with each daemon on a separate machine; the CLI runs on the coordinator's machine.

    The network is untrusted: daemons use TLS with a certificate per machine and a token per role.
    """

    def __init__(self, nodes, slots=1, coordinator_flags=(), worker_flags=()):
        tls = [f"--tls-{part}={TLS}/{part}.pem" for part in ("ca", "cert", "key")]
        self._client_flags = [*tls, f"--token-file={TLS}/token"]
        super().__init__(nodes, slots, [*tls, f"--tokens={TLS}/tokens", *coordinator_flags],
                         [*self._client_flags, *worker_flags])
        self._authority = Authority(self.directory / "authority")
        self._tokens = {role: secrets.token_hex(32) for role in ("admin", "worker")}
        self.lab = Lab()
        self.machines = self.lab.machines

    def __exit__(self, *error):
        try:
            super().__exit__(*error)
        finally:
            self.lab.close()

    def machine(self, name):
        """The machine of that name, with Muster's programs, certificates and token installed."""
        if name not in self.machines:
            machine = self.lab.add(name)
            for program in PROGRAMS:
                machine.install(binary(program), f"{BIN}/{os.path.basename(program)}")
            certificate, key = self._authority.issue(name, machine.address)
            for source, part in ((self._authority.certificate, "ca"), (certificate, "cert"), (key, "key")):
                machine.install(source, f"{TLS}/{part}.pem")
            # The CLI's and the worker's tokens have different roles; only the coordinator has all
            # tokens.
            role = "admin" if name == "coordinator" else "worker"
            machine.write_secret(f"{TLS}/token", self._tokens[role])
            if name == "coordinator":
                machine.write_secret(f"{TLS}/tokens", "".join(f"{r} {t} test\n" for r, t in self._tokens.items()))
        return self.machines[name]

    def site(self, name):
        machine = self.machine(name)
        program = "muster-coordinator" if name == "coordinator" else "muster-worker"
        return Site(DATA, machine.address, f"{BIN}/{program}", tuple(machine.prefix()), self.environment())

    def environment(self):
        """Environment with a home on the machine itself and without directories of the host."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("MUSTER_", "XDG_", "TEST_", "TMP"))}
        return dict(env, HOME="/tmp", MUSTER_TOKEN_DIR="/tmp/tokens", PWD="/")

    def command(self, *args):
        return [*self.machine("coordinator").prefix(), f"{BIN}/muster", *self._client_flags, *map(str, args)]

    def write_spec(self, spec):
        return self.machine("coordinator").install(super().write_spec(spec), f"/tmp/specs/{spec['name']}.json")

    def data_dir(self, name):
        """Path of a machine's data directory for this process."""
        return self.machines[name].path(str(DATA))

    def processes(self):
        return [entry for machine in self.machines.values() for entry in machine.processes().items()]

    def rank_pids(self, node=None):
        machines = [self.machines[node]] if node else self.machines.values()
        return [pid for machine in machines for pid in machine.processes()
                if program_name(pid) == "muster-rank"]


def program_name(pid):
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""
