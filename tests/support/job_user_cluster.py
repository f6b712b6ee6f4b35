"""A joined cluster whose workers run each job as the Unix user with the name of its owner."""

import os
import pathlib
import pwd
import re
import shutil
import subprocess

from tests.support.cluster import Daemon, binary, fashion_mnist
from tests.support.joined_cluster import JoinedCluster

__all__ = ["ALICE", "BOB", "STRANGER", "JobUserCluster", "parent_of", "uid", "users_of"]

# Owners: users that every Debian system has and that own no processes, so that none need to be created.
ALICE, BOB = "games", "news"
STRANGER = "no-such-unix-user"
PROGRAMS = ("worker/muster-worker", "worker/muster-shim", "worker/muster-c10d-store", "worker/muster-mpi", "trainer/muster-rank")


def uid(name):
    return pwd.getpwnam(name).pw_uid


def parent_of(pid):
    return int(re.search(r"^PPid:\s+(\d+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])


def users_of(pid):
    """Real, effective, saved and file system uid."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return [int(word) for word in re.search(r"^Uid:\s+(.*)$", text, re.M)[1].split()]


class JobUserCluster(JoinedCluster):
    """Requires root. Its users have role submit; the cluster's own calls are those of the administrator."""

    def __init__(self, nodes=0, slots=2, job_user="{owner}", **kwargs):
        super().__init__(nodes=nodes, slots=slots, **kwargs)
        self.worker_flags += [f"--job-user={job_user}", "--job-user-min-uid=1"]
        # Jobs must reach the data directories, programs and data, which the build's folder may not permit.
        self.directory.chmod(0o711)
        self.programs = self.directory / "bin"
        self.programs.mkdir()
        for program in PROGRAMS:
            shutil.copy(binary(program), self.programs)
        self.dataset = self.directory / "dataset"
        shutil.copytree(fashion_mnist(), self.dataset)
        self.identities = {}

    def init(self, *flags):
        result = super().init(*flags)
        tokens = self.directory / "coordinator/identity/tokens"
        for name in (ALICE, BOB, STRANGER, "root"):
            token = f"{name}-token-0123456789"
            self.identities[name] = self.directory / f"{name}.token"
            self.identities[name].write_text(token)
            self.identities[name].chmod(0o600)
            tokens.write_text(tokens.read_text() + f"submit {token} {name}\n")
        return result

    def _start(self, name, site, program, *flags):
        if not program.startswith("worker/"):
            return super()._start(name, site, program, *flags)
        kept = [flag for flag in flags if not flag.startswith(("--coordinator=", "--name="))]
        argv = [str(self.programs / pathlib.Path(program).name), f"--config={self.config(name)}", *kept]
        return Daemon(name, argv, self.directory, site.env, site.prefix)

    def as_owner(self, owner, *args, check=True, **kwargs):
        env = dict(self.client_env(), MUSTER_TOKEN_FILE=str(self.identities[owner]))
        result = subprocess.run(self.command(*args), env=env, capture_output=True, text=True, timeout=120,
                                stdin=subprocess.DEVNULL, **kwargs)
        if check and result.returncode != 0:
            raise AssertionError(f"muster {args} exited {result.returncode}\n{result.stdout}\n{result.stderr}")
        return result

    def submit_as(self, owner, spec):
        return self.as_owner(owner, "submit", self.write_spec(spec), "-o", "name").stdout.strip()

    def rank_pid(self, job, rank=0):
        return next(int(entry["pid"]) for entry in self.describe(job)["ranks"] if int(entry.get("rank", 0)) == rank)

    def folder_for(self, owner, name):
        """A new directory of the owner, for example for checkpoints."""
        path = self.directory / name
        path.mkdir(mode=0o700)
        os.chown(path, uid(owner), pwd.getpwnam(owner).pw_gid)
        return path

    def owners_of(self, path):
        """Names of the users who own the files below the path."""
        return {pwd.getpwuid(entry.lstat().st_uid).pw_name for entry in path.rglob("*")}
