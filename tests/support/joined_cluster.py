"""A cluster of `muster cluster init` and `muster cluster join`, on loopback."""

import json
import os
import pathlib
import shlex
import socket
import subprocess

from tests.support.cluster import Cluster, Daemon, binary, wait_until

__all__ = ["JoinedCluster"]


class JoinedCluster(Cluster):
    """Its daemons read the files that the verbs have written, and get no other flags than an HTTP port and slots."""

    def __init__(self, nodes=0, slots=1, coordinator_flags=()):
        super().__init__(nodes=nodes, slots=slots, coordinator_flags=coordinator_flags)
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            self.port = server.getsockname()[1]
        self.join_command = ""

    def __enter__(self):
        self.join_command = self.init().stdout.strip()
        return super().__enter__()

    def init(self, *flags):
        return self.local("cluster", "init", "--names=127.0.0.1,localhost", f"--listen=127.0.0.1:{self.port}",
                          f"--coordinator-config={self.config('coordinator')}",
                          f"--data-dir={self.directory}/coordinator", f"--admin-dir={self.directory}/admin", *flags)

    def join(self, name, command=None, check=True, **changes):
        """Runs the printed line for a node; `changes` replace its options."""
        words = shlex.split(command or self.join_command)[1:]
        for option, value in changes.items():
            words[words.index("--" + option.replace("_", "-")) + 1] = value
        if "--name" not in words:
            words += ["--name", name]
        return self.local(*words, f"--worker-config={self.config(name)}", f"--data-dir={self.directory}/{name}",
                          check=check)

    def local(self, *args, check=True):
        """A command that finds neither the administrator's settings nor the coordinator's local token."""
        env = dict(self.environment(), MUSTER_TOKEN_DIR=str(self.directory / "none"))
        result = subprocess.run([binary("cli/muster"), *args], env=env, text=True, timeout=60,
                                stdin=subprocess.DEVNULL, capture_output=True)
        if check and result.returncode != 0:
            raise AssertionError(f"muster {args} exited {result.returncode}\n{result.stdout}\n{result.stderr}")
        return result

    def issue_user(self, name, *flags):
        """Makes the folder of a user, whom the coordinator knows when this returns."""
        folder = pathlib.Path(self.local("cert", "issue", "user", name, f"--coordinator=127.0.0.1:{self.port}",
                                         f"--dir={self.directory}/coordinator/identity", *flags).stdout.strip())
        wait_until(lambda: self.local("list", "--config", folder / "config", check=False).returncode == 0, 10,
                   f"the coordinator has reloaded its tokens with that of {name}")
        return folder

    def token(self, *flags):
        """The line that `muster node token` prints."""
        return self.muster("node", "token", *flags).stdout.strip()

    def config(self, name):
        return self.directory / f"{name}.conf"

    def start_worker(self, name, slots=1, flags=(), **site):
        """Joins first, if the node has no identity."""
        if not (self.directory / name / "identity/node.pem").exists():
            self.join(name)
        return super().start_worker(name, slots, flags, **site)

    def _start(self, name, site, program, *flags):
        kept = [flag for flag in flags if not flag.startswith(("--listen=", "--coordinator=", "--name="))]
        return Daemon(name, [binary(program), f"--config={self.config(name)}", *kept], self.directory, site.env)

    def client_env(self):
        return dict(self.environment(), MUSTER_CONFIG=str(self.directory / "admin/config"))

    def environment(self):
        env = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        return dict(env, MUSTER_TOKEN_DIR=str(self.directory / "tokens"), HOME=str(self.directory))

    def audit(self):
        """The entries of the audit log."""
        path = self.directory / "coordinator/audit.log"
        return [json.loads(line) for line in path.read_text().splitlines()]
