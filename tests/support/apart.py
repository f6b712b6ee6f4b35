"""A cluster whose coordinator and workers share nothing but a network: one namespace laboratory of machines."""

import os
import pathlib
import secrets

from tests.support.certificates import Authority
from tests.support.cluster import Cluster, Site
from tests.support.daemon import binary
from tests.support.namespaces import Lab

PROGRAMS = ("cli/muster", "coordinator/muster-coordinator", "worker/muster-worker", "worker/muster-shim",
            "trainer/muster-rank")
# On each machine, in its own /tmp.
BIN = "/tmp/bin"
DATA = pathlib.Path("/tmp/data")
TLS = "/tmp/tls"


class ApartCluster(Cluster):
    """As Cluster, each daemon on a machine of its own; the command line runs on the coordinator's.

    They talk as on a network that nobody trusts: TLS with a certificate for each machine, and a token for each role.
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
        """The machine of that name, with Muster's programs on it and what it needs to be believed."""
        if name not in self.machines:
            machine = self.lab.add(name)
            for program in PROGRAMS:
                machine.install(binary(program), f"{BIN}/{os.path.basename(program)}")
            certificate, key = self._authority.issue(name, machine.address)
            for source, part in ((self._authority.certificate, "ca"), (certificate, "cert"), (key, "key")):
                machine.install(source, f"{TLS}/{part}.pem")
            # The command line's own and the worker's are of different roles; only the coordinator knows all.
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
        """A home on the machine itself, and no directory of the host's."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("MUSTER_", "XDG_", "TEST_", "TMP"))}
        return dict(env, HOME="/tmp", MUSTER_TOKEN_DIR="/tmp/tokens", PWD="/")

    def command(self, *args):
        return [*self.machine("coordinator").prefix(), f"{BIN}/muster", *self._client_flags, *map(str, args)]

    def write_spec(self, spec):
        return self.machine("coordinator").install(super().write_spec(spec), f"/tmp/specs/{spec['name']}.json")

    def data_dir(self, name):
        """A machine's data directory as this process sees it."""
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
