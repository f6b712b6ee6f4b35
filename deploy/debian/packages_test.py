"""The Debian packages: their contents, lintian's findings, and a cluster of the installed programs during an upgrade.

They are installed in a copy of this system: an overlay, in a mount namespace that disappears with the test.
"""

import gzip
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from tests.bundle import roots
from tests.support import namespaces
from tests.support.cluster import Cluster, shell_spec

FOLDER = pathlib.Path("deploy/deb").absolute()
NAMES = ("muster-common", "muster", "muster-coordinator", "muster-worker")
# Takes the place of systemd, which does not run in the copy: records its calls, and reloads as the worker's unit says.
SYSTEMCTL = """#!/bin/bash
echo "$@" >>/run/systemctl.calls
reload=$(sed -n 's/^ExecReload=//p' /lib/systemd/system/muster-worker.service)
case "$*" in
*is-enabled*) echo enabled ;;
*"try-reload-or-restart muster-worker.service") MAINPID=$(cat /run/worker.pid) bash -c "$reload" ;;
esac
"""


def package(name):
    return next(FOLDER.glob(f"{name}_*.deb"))


def run(*argv, **kwargs):
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=True, **kwargs).stdout


def files(name):
    """{path: mode and owner} of a package."""
    listing = run("dpkg-deb", "--contents", package(name))
    return {path: f"{mode} {owner}" for mode, owner, path in
            re.findall(r"^(\S+) (\S+) +\d+ \S+ \S+ \./(\S+)", listing, re.M)}


class ContentTest(unittest.TestCase):
    def test_programs(self):
        self.assertEqual(files("muster")["usr/bin/muster"], "-rwxr-xr-x root/root")
        self.assertEqual(files("muster-coordinator")["usr/bin/muster-coordinator"], "-rwxr-xr-x root/root")
        worker = files("muster-worker")
        for name in ("worker", "shim", "rank", "c10d-store", "mpi"):
            self.assertEqual(worker[f"usr/lib/muster/muster-{name}"], "-rwxr-xr-x root/root")
        self.assertEqual(worker["usr/bin/muster-worker"], "lrwxrwxrwx root/root")
        self.assertEqual(worker["usr/share/doc/muster-worker/examples/job-user.conf"], "-rw-r--r-- root/root")

    def test_files_for_monitoring(self):
        found = {path: mode for path, mode in files("muster-coordinator").items() if path.startswith("usr/share/muster/")
                 and not path.endswith("/")}
        self.assertEqual(found, {f"usr/share/muster/{path}": "-rw-r--r-- root/root" for path in (
            "grafana/cluster.json", "grafana/control-plane.json", "grafana/job.json", "grafana/node.json",
            "prometheus/alert_rules.yml", "prometheus/prometheus.yml", "prometheus/recording_rules.yml")})

    def test_dependencies_are_those_of_the_libraries(self):
        for name in NAMES[1:]:
            depends = run("dpkg-deb", "--field", package(name), "Depends")
            self.assertRegex(depends, r"^muster-common \(= [\d.]+\), .*libc6 \(>= 2\.\d+\)")
            self.assertNotIn("$", depends)

    def test_configuration_is_kept_at_upgrades(self):
        for name, path in (("muster-coordinator", "/etc/muster/coordinator"), ("muster-worker", "/etc/muster/worker")):
            self.assertEqual(run("dpkg-deb", "--info", package(name), "conffiles"), f"{path}\n")

    def test_man_pages_render(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in NAMES:
                run("dpkg-deb", "--extract", package(name), folder)
            pages = sorted(pathlib.Path(folder).glob("usr/share/man/man*/*.gz"))
            names = {page.name for page in pages}
            self.assertLessEqual({"muster.1.gz", "muster-submit.1.gz", "muster-node-drain.1.gz",
                                  "muster-coordinator.8.gz", "muster-worker.8.gz"}, names)
            for page in pages:
                text = gzip.decompress(page.read_bytes()).decode()
                for part in ("NAME", "SYNOPSIS", "DESCRIPTION"):
                    self.assertIn(f"\n.SH {part}\n", text, page.name)
                if shutil.which("man"):
                    shown = subprocess.run(["man", "--warnings", "--local-file", "-Tutf8", page], capture_output=True,
                                           text=True, check=False, env=dict(os.environ, LC_ALL="C.UTF-8"))
                    self.assertEqual((shown.returncode, shown.stderr), (0, ""), page.name)

    def test_completion_scripts(self):
        with tempfile.TemporaryDirectory() as folder:
            run("dpkg-deb", "--extract", package("muster"), folder)
            share = pathlib.Path(folder, "usr/share")
            run("bash", "-n", share / "bash-completion/completions/muster")
            self.assertIn("#compdef muster", (share / "zsh/vendor-completions/_muster").read_text())
            self.assertIn("complete -c muster", (share / "fish/vendor_completions.d/muster.fish").read_text())


class LintianTest(unittest.TestCase):
    @unittest.skipIf(shutil.which("lintian") is None, "lintian is not installed")
    def test_finds_no_errors(self):
        result = subprocess.run(["lintian", "--allow-root", "--fail-on=error", "--no-tag-display-limit",
                                 *map(package, NAMES)], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


class InstalledCluster(Cluster):
    """A cluster of the installed programs in a copy of this system."""

    def __enter__(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-deb."))
        self.resources.callback(shutil.rmtree, folder)
        self.root = roots.SystemCopy(self.directory, folder, [self.directory, FOLDER.resolve()])
        self.resources.callback(self.root.close)
        self.inside("mkdir", "-p", "/run/systemd/system")
        # On machines for builds it often forbids services.
        self.inside("rm", "-f", "/usr/sbin/policy-rc.d")
        self.write("/usr/bin/systemctl", SYSTEMCTL, "755")
        return super().__enter__()

    def inside(self, *argv):
        # dpkg looks for programs of administrators in PATH.
        env = dict(os.environ, PATH="/usr/sbin:/usr/bin:/sbin:/bin")
        result = subprocess.run([*self.root.prefix(), *map(str, argv)], env=env, capture_output=True, text=True,
                                check=False)
        assert result.returncode == 0, f"{argv} exited {result.returncode}\n{result.stdout}{result.stderr}"
        return result.stdout

    def write(self, path, text, mode="644"):
        self.inside("bash", "-c", 'rm -f "$0"; printf %s "$1" >"$0"; chmod "$2" "$0"', path, text, mode)

    def install(self):
        return self.inside("dpkg", "--install", "--no-triggers", *[package(name).resolve() for name in NAMES])

    def systemctl_calls(self):
        calls = self.inside("cat", "/run/systemctl.calls").splitlines()
        self.inside("rm", "/run/systemctl.calls")
        actions = [re.search(r"\b(start|stop|try-restart|try-reload-or-restart) \S+$", call) for call in calls]
        return [action[0] for action in actions if action]

    def start_coordinator(self, **site):
        if self.coordinator is None:
            self.install()
        return super().start_coordinator(**site)

    def site(self, name):
        site = super().site(name)
        site.program = f"/usr/bin/muster-{'coordinator' if name == 'coordinator' else 'worker'}"
        site.prefix = self.root.prefix()
        return site

    def command(self, *args):
        return [*self.root.prefix(), "/usr/bin/muster", *map(str, args)]


class InstalledTest(unittest.TestCase):
    def setUp(self):
        try:
            self.cluster = self.enterContext(InstalledCluster(nodes=1))
        except namespaces.Unavailable as why:
            self.skipTest(str(why))

    def test_upgrade_leaves_jobs_running_and_removal_stops(self):
        cluster = self.cluster
        self.assertEqual(cluster.systemctl_calls(),
                         ["start muster-coordinator.service", "start muster-worker.service"])
        owner = cluster.inside("stat", "--format=%U %a", "/var/lib/muster", "/var/lib/muster-worker")
        self.assertEqual(owner, "muster 700\n" * 2)

        job = cluster.submit(shell_spec("across", "echo $$; until [ -e done ]; do sleep 0.05; done"))
        cluster.wait_for_state(job, "RUNNING")
        worker = cluster.workers["node-1"]
        cluster.write("/run/worker.pid", str(worker.pid))
        cluster.install()
        self.assertEqual(cluster.systemctl_calls(), ["try-restart muster-coordinator.service",
                                                     "try-reload-or-restart muster-worker.service"])
        self.assertEqual(worker.process.wait(10), 0)
        # systemd restarts the service after the handover.
        cluster.start_worker("node-1")
        cluster.wait_for_nodes(1)
        described = cluster.describe(job)
        self.assertEqual((described["state"], int(described["generation"])), ("RUNNING", 1))
        workdir = cluster.muster("exec", job, "--", "pwd").stdout.strip()
        cluster.inside("touch", f"{workdir}/done")
        self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
        self.assertEqual(len(cluster.muster("logs", job).stdout.split()), 1)

        cluster.inside("dpkg", "--remove", "--no-triggers", "muster-worker", "muster-coordinator")
        self.assertEqual(sorted(cluster.systemctl_calls()),
                         ["stop muster-coordinator.service", "stop muster-worker.service"])
        cluster.inside("test", "-e", "/etc/muster/worker", "-a", "-d", "/var/lib/muster")

    @unittest.skipIf(shutil.which("systemd-analyze") is None, "systemd-analyze is not installed")
    def test_systemd_accepts_the_units(self):
        for name in ("coordinator", "worker"):
            result = subprocess.run([*self.cluster.root.prefix(), "systemd-analyze", "verify",
                                     f"/lib/systemd/system/muster-{name}.service"],
                                    capture_output=True, text=True, check=False)
            # Newer than some versions of systemd, which ignore it.
            problems = [line for line in result.stderr.splitlines()
                        if "muster-" in line and "DelegateSubgroup" not in line]
            self.assertEqual(problems, [])


if __name__ == "__main__":
    unittest.main()
