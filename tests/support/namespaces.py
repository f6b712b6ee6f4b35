"""Isolated simulated machines on one host: each has its own network, mount, pid and host-name namespace.

Their network is a bridge in another namespace, so the host's network is not changed. Every namespace is held only by a
process, not by a name: each holder ends when the pipe from this process closes, so all namespaces disappear even when
the test is killed. Requires root or unprivileged user namespaces; `why_not()` returns what is missing.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess

from tests.support.daemon import child_of

SUBNET = "10.77.0"
NOBODY = "02:00:00:00:00:01"  # hardware address of no machine
# Waits on the pipe; as init of its pid namespace, bash reaps orphaned processes.
HOLD = "read -r _"


class Unavailable(Exception):
    """Namespaces cannot be created on this machine; the message is the reason."""


def _run(argv):
    result = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise Unavailable(f"{' '.join(argv)}: {result.stderr.strip() or result.returncode}")
    return result.stdout


class Holder:
    """A process that holds namespaces and ends with this process."""

    def __init__(self, kinds, script, prefix=(), enters=()):
        self._enters = enters
        argv = [*prefix, "unshare", *kinds, "--fork", "--kill-child", "/bin/bash", "-c", f"{script}\necho up\n{HOLD}"]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True)
        if self._process.stdout.readline() != "up\n":
            _, error = self._process.communicate()
            raise Unavailable(error.strip() or "unshare failed")
        self.pid = self._inner_pid()

    def _inner_pid(self):
        """Pid of bash, which nsenter and unshare started."""
        pid = self._process.pid
        while (child := child_of(pid)) is not None:
            pid = child
        return pid

    def prefix(self):
        """Command prefix to run a command inside the namespaces."""
        return ["nsenter", f"--target={self.pid}", *self._enters, "--"]

    def run(self, *argv):
        return _run([*self.prefix(), *argv])

    def processes(self):
        """{pid on the host: command line} of the processes in its pid namespace, except itself."""
        where = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = {}
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int(entry.name) == self.pid or os.readlink(entry / "ns/pid") != where:
                    continue
                if (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(entry.name)] = command.decode(errors="replace").strip()
        return found

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()
        self._process.stderr.close()


class Mounts(Holder):
    """This machine with other mounts, created by a script, e.g. a full or read-only disk."""

    def __init__(self, script):
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        super().__init__([*user, "--mount"], f"set -e\nmount --make-rprivate /\n{script}", (),
                         (*(["--user", "--preserve-credentials"] if user else []), "--mount"))

    def path(self, path):
        """Path by which this process reaches `path` of the mount namespace."""
        return pathlib.Path(f"/proc/{self.pid}/root{path}")


class Machine(Holder):
    """A machine: `address` on the bridge, its own loopback, /tmp, /dev/shm, /proc and host name."""

    _SETUP = """
        set -e
        mount --make-rprivate /
        mount -t tmpfs -o mode=1777 tmpfs /tmp
        mount -t tmpfs -o mode=1777 tmpfs /dev/shm
        hostname {name}
        ip link set lo up
        """

    def __init__(self, lab, name, number):
        self.name = name
        self.address = f"{SUBNET}.{number}"
        self._lab = lab
        self._port = f"port{number}"
        super().__init__(["--net", "--mount", "--pid", "--uts", "--ipc", "--mount-proc"],
                         self._SETUP.format(name=name), lab.prefix(),
                         (*lab.user, "--net", "--mount", "--pid", "--uts", "--ipc"))
        lab.run("ip", "link", "add", self._port, "type", "veth", "peer", "name", "eth0",
                "netns", str(lab.pid_inside(self.pid)))
        lab.run("ip", "link", "set", self._port, "master", "bridge0", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def cut(self):
        """Silently drops all packets from now on, as a failed switch does."""
        self._lab.run("ip", "link", "set", self._port, "nomaster")

    def heal(self):
        self._lab.run("ip", "link", "set", self._port, "master", "bridge0")

    def drop_to(self, other):
        """Drops the packets from this machine to the other one from now on; those from there still arrive."""
        self.run("ip", "neigh", "replace", other.address, "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")

    def deliver_to(self, other):
        """Ends drop_to."""
        self.run("ip", "neigh", "del", other.address, "dev", "eth0")

    def isolate(self):
        """Drops packets between this and other isolated machines from now on; all other machines stay reachable."""
        self._lab.run("ip", "link", "set", self._port, "type", "bridge_slave", "isolated", "on")

    def path(self, path):
        """Path by which this process reaches `path` on the machine."""
        return pathlib.Path(f"/proc/{self.pid}/root{path}")

    def install(self, source, path):
        """Copies a file to the machine, which has its own /tmp."""
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        return path

    def write_secret(self, path, text):
        """Writes a file that only its owner can read."""
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch(mode=0o600)
        target.write_text(text)


class Lab:
    """The bridge and the machines on it; a context manager."""

    def __init__(self):
        self.machines = {}
        self.user = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
        kinds = ["--net", "--mount", "--pid", "--mount-proc"]
        if self.user:
            kinds = ["--user", "--map-root-user", *kinds]
        self._holder = Holder(kinds, """
            set -e
            mount --make-rprivate /
            ip link add bridge0 type bridge
            ip link set bridge0 up""", (), (*self.user, "--net", "--mount", "--pid"))
        self.run = self._holder.run
        self.prefix = self._holder.prefix

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def add(self, name):
        self.machines[name] = Machine(self, name, len(self.machines) + 1)
        return self.machines[name]

    def pid_inside(self, pid):
        """The pid of a process in the lab's /proc."""
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                numbers = line.split()[1:]
                # Outermost first: pid on the host, in the lab, on the machine.
                return int(numbers[-2])
        raise Unavailable("/proc shows no pid namespaces")

    def close(self):
        for machine in self.machines.values():
            machine.close()
        self._holder.close()


def why_not():
    """Reason why the lab cannot be created here; empty if it can."""
    for tool in ("ip", "nsenter", "unshare"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    try:
        with Lab() as lab:
            machine = lab.add("probe")
            machine.run("ip", "-brief", "address", "show", "eth0")
    except Unavailable as error:
        return f"cannot create namespaces: {error}"
    return ""
