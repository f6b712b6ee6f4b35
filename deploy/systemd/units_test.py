"""The units that ship: systemd accepts them, ranks survive their worker under them, and the daemons notify."""

import collections
import contextlib
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import unittest

from tests.support.cluster import Cluster, shell_spec
from tests.support.daemon import ROOT, wait_until

FOLDER = pathlib.Path(__file__).resolve().parent
UNITS = {name: FOLDER / f"muster-{name}.service" for name in ("coordinator", "worker")}
DROP_IN = "muster-worker-job-user.conf"
# Newer than some versions of systemd, which ignore it.
NEW_KEYS = ("DelegateSubgroup",)


def settings(name):
    """{section: {key: [values]}} of a unit."""
    sections, section = {}, None
    for number, line in enumerate(UNITS[name].read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if header := re.fullmatch(r"\[(\w+)\]", line):
            section = sections.setdefault(header[1], collections.defaultdict(list))
        elif entry := re.fullmatch(r"(\w+)=(.*)", line):
            section[entry[1]].append(entry[2])
        else:
            raise AssertionError(f"{UNITS[name]}:{number}: {line}")
    return sections


class UnitsTest(unittest.TestCase):
    def check(self, name, **expected):
        service = settings(name)["Service"]
        self.assertEqual({key: service[key] for key in expected}, {key: [value] for key, value in expected.items()})
        return service

    def test_are_well_formed(self):
        for name in UNITS:
            unit = settings(name)
            self.assertEqual(sorted(unit), ["Install", "Service", "Unit"])
            for section in unit.values():
                for key, values in section.items():
                    self.assertEqual(len(values), 1, f"{name}: {key}")

    def test_coordinator(self):
        self.check("coordinator", Type="notify", WatchdogSec="30s", Restart="on-failure", User="muster",
                   ProtectSystem="strict", NoNewPrivileges="yes")

    def test_worker_hands_over_and_keeps_ranks(self):
        service = self.check("worker", Type="notify", WatchdogSec="60s", Restart="always", User="muster",
                             KillMode="process", Delegate="yes", ExecReload="/bin/kill -USR2 $MAINPID",
                             OOMPolicy="continue", PrivateTmp="no", ProtectControlGroups="no")
        # These break ranks: GPUs need devices and modules, other programs need privileges or namespaces.
        for key in ("NoNewPrivileges", "PrivateDevices", "ProtectClock", "DevicePolicy", "RestrictNamespaces",
                    "MemoryDenyWriteExecute", "SystemCallFilter", "ProtectKernelModules"):
            self.assertNotIn(key, service)

    def test_job_user_drop_in(self):
        """Grants what the worker requires, with the worker's own list as the source."""
        drop_in = (FOLDER / DROP_IN).read_text()
        granted = re.search(r"^AmbientCapabilities=(.*)$", drop_in, re.M)[1].split()
        required = re.findall(r'"(CAP_[A-Z_]+)"', (ROOT / "worker/agent/job_user.cc").read_text())
        self.assertEqual(granted, required)

    @unittest.skipIf(shutil.which("systemd-analyze") is None, "systemd-analyze is not installed")
    def test_are_accepted_by_systemd(self):
        with tempfile.TemporaryDirectory() as folder:
            copies = []
            drop_ins = pathlib.Path(folder) / "muster-worker.service.d"
            drop_ins.mkdir()
            shutil.copy(FOLDER / DROP_IN, drop_ins / "job-user.conf")
            for name, unit in UNITS.items():
                copy = pathlib.Path(folder) / unit.name
                # It checks that the program exists.
                copy.write_text(re.sub(r"/opt/muster/bin/[a-z-]+", "/bin/true", unit.read_text()))
                copies.append(str(copy))
            result = subprocess.run(["systemd-analyze", "verify", *copies], capture_output=True, text=True,
                                    check=False, timeout=60)
        problems = [line for line in result.stderr.splitlines()
                    if "muster-" in line and not any(key in line for key in NEW_KEYS)]
        self.assertEqual(problems, [])


class NotificationsTest(unittest.TestCase):
    """Daemons started as systemd starts those of Type=notify with a watchdog."""

    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="muster-units."))
        self.listener = self.enterContext(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self.listener.bind(f"{folder}/notify")
        self.listener.setblocking(False)
        self.received = []
        self.cluster = self.enterContext(Cluster())
        self.env = dict(self.cluster.environment(), NOTIFY_SOCKET=f"{folder}/notify", WATCHDOG_USEC="1000000")

    def expect_notifications(self):
        def complete():
            with contextlib.suppress(BlockingIOError):
                self.received.append(self.listener.recv(100).decode())
            return self.received.count("WATCHDOG=1") >= 2 and "READY=1" in self.received
        wait_until(complete, 20, "READY=1 and two of WATCHDOG=1")

    def test_coordinator_notifies(self):
        self.cluster.coordinator.stop()
        self.cluster.start_coordinator(env=self.env)
        self.expect_notifications()

    def test_worker_notifies_and_its_ranks_do_not(self):
        self.cluster.start_worker("node-1", env=self.env)
        self.expect_notifications()
        self.cluster.wait_for_nodes(1)
        job = self.cluster.submit(shell_spec("shell", "env | grep -E 'NOTIFY_SOCKET|WATCHDOG' && exit 3; exit 0"))
        self.assertEqual(self.cluster.wait(job)["state"], "SUCCEEDED")


if __name__ == "__main__":
    unittest.main()
