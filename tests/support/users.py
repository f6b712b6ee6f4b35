"""A cluster with several users."""

import subprocess

from tests.support.cluster import Cluster

TOKENS = {"alice": "alice-token-0123456789", "bob": "bob-token-0123456789"}


class UsersCluster(Cluster):
    """A cluster with users of role submit; the cluster's own calls use the local token, of role admin."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        path = self.directory / "users"
        path.write_text("".join(f"submit {token} {name}\n" for name, token in TOKENS.items()))
        path.chmod(0o600)
        self.coordinator_flags.append(f"--tokens={path}")

    def as_user(self, name, *args):
        return subprocess.run(self.command(*args), env=dict(self.client_env(), MUSTER_TOKEN=TOKENS[name]),
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
