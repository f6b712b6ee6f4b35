"""Machines that are really apart, on one host: each a network, mount, pid and host-name namespace of its own.

Their network is a bridge in another namespace, so the host's own network is not touched. Every namespace is held by
a process alone, and by no name: each holder ends when the pipe from this process closes, so all of it goes also
when the test is killed. Needs root or unprivileged user namespaces; `why_not()` says what is missing.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess

from tests.support.daemon import child_of

SUBNET = "10.77.0"
# A bash that waits on its pipe reaps what is orphaned in its pid namespace, as an init has to.
HOLD = "read -r _"


class Unavailable(Exception):
    """Namespaces cannot be made here; the text says why."""


def _run(argv):
    result = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise Unavailable(f"{' '.join(argv)}: {result.stderr.strip() or result.returncode}")
    return result.stdout


class Holder:
    """A process that holds namespaces, and ends with this one."""

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
        """Of the bash, behind the nsenter and unshare that started it."""
        pid = self._process.pid
        while (child := child_of(pid)) is not None:
            pid = child
        return pid

    def prefix(self):
        """What a command starts with to run inside."""
        return ["nsenter", f"--target={self.pid}", *self._enters, "--"]

    def run(self, *argv):
        return _run([*self.prefix(), *argv])

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
    """This machine with other mounts, made by a script: a full disk, a read-only one."""

    def __init__(self, script):
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        super().__init__([*user, "--mount"], f"set -e\nmount --make-rprivate /\n{script}", (),
                         (*(["--user", "--preserve-credentials"] if user else []), "--mount"))

    def path(self, path):
        """A path as it is with these mounts, for this process."""
        return pathlib.Path(f"/proc/{self.pid}/root{path}")


class Machine(Holder):
    """One machine: `address` on the bridge, own loopback, /tmp, /dev/shm, /proc and host name."""

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
        """From now on every packet is lost without a word, as when a switch dies."""
        self._lab.run("ip", "link", "set", self._port, "nomaster")

    def heal(self):
        self._lab.run("ip", "link", "set", self._port, "master", "bridge0")

    def isolate(self):
        """From now on packets between it and others that are isolated are lost; it reaches all others."""
        self._lab.run("ip", "link", "set", self._port, "type", "bridge_slave", "isolated", "on")

    def path(self, path):
        """A path on the machine as this process sees it."""
        return pathlib.Path(f"/proc/{self.pid}/root{path}")

    def install(self, source, path):
        """Copies a file to the machine, which sees nothing of the host's /tmp."""
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        return path

    def write_secret(self, path, text):
        """A file that only its owner reads."""
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch(mode=0o600)
        target.write_text(text)

    def processes(self):
        """{pid outside: command line} of what runs on the machine, its holder apart."""
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
        """A process's number as the laboratory's own /proc has it."""
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                numbers = line.split()[1:]
                # Outermost first: the host's, the laboratory's, the machine's own.
                return int(numbers[-2])
        raise Unavailable("/proc shows no pid namespaces")

    def close(self):
        for machine in self.machines.values():
            machine.close()
        self._holder.close()


def why_not():
    """Why no laboratory can be built here; empty when one can."""
    for tool in ("ip", "nsenter", "unshare"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    try:
        with Lab() as lab:
            machine = lab.add("probe")
            machine.run("ip", "-brief", "address", "show", "eth0")
    except Unavailable as error:
        return f"namespaces cannot be made here: {error}"
    return ""
