"""The bundle's install.sh, in a copy of this system."""

import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

from tests.bundle import roots
from tests.support import namespaces

BUNDLE = pathlib.Path("deploy/muster.tar.xz").absolute()
# systemd does not run in the copy: records its calls; the services are active once they are enabled.
SYSTEMCTL = """#!/bin/bash
echo "$@" >>/run/calls
[[ $1 != is-active ]] || grep -q "enable --now ${@: -1}" /run/calls
"""


class InstallTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-install."))
        self.addCleanup(shutil.rmtree, self.folder)
        with tarfile.open(BUNDLE) as tar:
            tar.extractall(self.folder)
        (self.folder / "root").mkdir()
        try:
            root = roots.SystemCopy(self.folder, self.folder / "root", [self.folder / "muster"])
        except namespaces.Unavailable as why:
            self.skipTest(str(why))
        self.addCleanup(root.close)
        self.prefix = root.prefix()
        self.inside('cd /usr/bin; rm -f systemctl; printf %s "$0" >systemctl; chmod +x systemctl', SYSTEMCTL)
        self.inside("mkdir -p /run/systemd/system; rm -rf /etc/muster /opt/muster")

    def inside(self, script, *argv, check=True):
        result = subprocess.run([*self.prefix, "/bin/bash", "-c", script, *argv], capture_output=True, text=True,
                                check=False, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
        if check:
            self.assertEqual(result.returncode, 0, f"{script}\n{result.stdout}{result.stderr}")
        return result.stdout + result.stderr

    def install(self, *argv):
        return self.inside('"$0" "$@"', f"{self.folder}/muster/install.sh", *argv)

    def calls(self):
        """The calls of systemctl since the last one, without those that change nothing."""
        calls = self.inside("cat /run/calls; grep enable /run/calls >/run/kept; mv /run/kept /run/calls").splitlines()
        return [call for call in calls if not re.match("daemon-reload|is-active", call)]

    def test_services_and_upgrade(self):
        self.assertRegex(self.install("coordinator"),
                         r"installed muster \d.* in /opt/muster, with links in /usr/local/bin")
        self.install("worker", "head:7070")
        self.assertEqual(self.calls(), ["enable --now muster-coordinator", "enable --now muster-worker"])
        self.assertRegex(self.inside("/usr/local/bin/muster --version"), r"^muster \d")
        self.assertEqual(self.inside("cat /etc/muster/worker"), "coordinator=head:7070\ndata-dir=/var/lib/muster-worker\n")
        self.assertEqual(self.inside("getent passwd muster | cut -d: -f6"), "/var/lib/muster\n")
        self.assertEqual(self.inside("stat -c %U /opt/muster/bin/muster-worker"), "root\n")

        self.inside("echo slots=3 >>/etc/muster/worker")
        self.install("coordinator")
        self.install("worker")
        self.assertEqual(self.calls()[2:], ["restart muster-coordinator", "reload muster-worker"])
        self.assertIn("coordinator=head:7070", self.inside("cat /etc/muster/worker"))
        self.assertIn("slots=3", self.inside("cat /etc/muster/worker"))
        self.inside("/usr/local/bin/muster-worker --version; [ ! -e /opt/muster.old ] && [ ! -e /opt/muster.new ]")

    def test_user_gets_the_programs_only(self):
        as_nobody = ("HOME=/tmp/nobody setpriv --reuid=65534 --regid=65534 --clear-groups "
                     f"'{self.folder}/muster/install.sh'")
        self.inside(f"chmod 755 '{self.folder}'; mkdir -p /tmp/nobody; chown 65534:65534 /tmp/nobody; {as_nobody}")
        self.assertRegex(self.inside("/tmp/nobody/.local/bin/muster --version"), r"^muster \d")
        self.assertIn("only root can install a service", self.inside(f"{as_nobody} worker", check=False))

    def test_rejects_other_arguments(self):
        self.assertIn("'server' is neither coordinator nor worker",
                      self.inside(f"'{self.folder}/muster/install.sh' server", check=False))


if __name__ == "__main__":
    unittest.main()
