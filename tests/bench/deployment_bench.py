#!/usr/bin/env python3
"""Seconds from a package in a file to the first finished job, for each way to install Muster.

    bazel build //deploy:bundle //deploy:deb //deploy:wheel
    tests/bench/deployment_bench.py [--rounds 3]

wheel      a new virtual environment, pip install without a network, muster local
bundle     tar xf, install.sh for both services, their start, muster run
bundle-12  the same in a minimal Debian 12
bundle-11  the same in a minimal Debian 11
deb        dpkg --install of all packages, the start of both services, muster run; the libraries that the packages need are
           installed already
deb-12     apt-get update and apt-get install of the packages in a minimal Debian 12, which downloads the libraries; the start
           of both services, muster run
slurm      sbatch of deploy/slurm/muster.sbatch with `muster run` on the 4 nodes of an idle Slurm on this machine, until
           Slurm's job has ended

bundle and deb are installed in a copy of this system, in which the daemons are started by hand as the user muster, because
systemd does not run there. Needs root, debootstrap and a mirror for the minimal systems, and slurm-wlm for the last way. The
time in which a person types is not counted.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bundle import roots  # noqa: E402
from tests.support import namespaces  # noqa: E402
from tests.support.daemon import Daemon, wait_until  # noqa: E402
from tests.support.slurm import SlurmCluster, missing_programs  # noqa: E402

DEPLOY = ROOT / "bazel-bin/deploy"
AS_MUSTER = ["setpriv", "--reuid=muster", "--regid=muster", "--init-groups", "env", "HOME=/var/lib/muster"]
NODES = 4


def run(*argv, **kwargs):
    subprocess.run([str(a) for a in argv], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **kwargs)


def install_wheel(folder):
    run("/usr/bin/python3", "-m", "venv", folder / "venv")
    run(folder / "venv/bin/pip", "install", "--no-index", next((DEPLOY / "wheel").glob("*.whl")))
    run(folder / "venv/bin/muster", "local", "--", "/bin/hostname", cwd=folder)


class SystemCopy:
    """A copy of the system whose root is `lower`, with the user's own commands in it."""

    def __init__(self, folder, lower):
        (folder / "root").mkdir()
        self._folder = folder
        self._root = roots.SystemCopy(folder, folder / "root", [folder, DEPLOY.resolve()], lower)
        self.close = self._root.close

    def __call__(self, script):
        run(*self._root.prefix(), "/bin/bash", "-ec", f"PATH=/usr/sbin:/usr/bin:/sbin:/bin\n{script}")

    def run_first_job(self):
        """Starts the services as their units do, and runs a job."""
        with contextlib.ExitStack() as stack:
            for name in ("coordinator", "worker"):
                argv = [*self._root.prefix(), *AS_MUSTER, f"muster-{name}", f"--config=/etc/muster/{name}"]
                stack.callback(Daemon(name, argv, self._folder).stop)
            run(*self._root.prefix(), *AS_MUSTER, "muster", "run", "--", "/bin/hostname")


def install_bundle(folder, lower="/"):
    system = SystemCopy(folder, lower)
    try:
        system(f"cd {folder}; tar xf {DEPLOY.resolve()}/muster.tar.xz\n"
               "muster/install.sh coordinator; muster/install.sh worker")
        # systemd makes the data directories.
        system("install -d -o muster -g muster -m 0700 /var/lib/muster /var/lib/muster-worker")
        system.run_first_job()
    finally:
        system.close()


def install_packages(folder, lower="/", command="dpkg --install"):
    system = SystemCopy(folder, lower)
    try:
        system(f"rm -f /usr/sbin/policy-rc.d; {command} {DEPLOY.resolve()}/deb/*.deb")
        system.run_first_job()
    finally:
        system.close()


def minimal_debian(suite, stack):
    """Folder with a minimal Debian that can install packages as this machine does."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"muster-{suite}."))
    stack.callback(shutil.rmtree, folder)
    roots.debian(suite, folder, ["ca-certificates", "xz-utils"])
    shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
    return folder


def start_in_slurm(folder, slurm):
    # The programs of this build, under their names.
    for program in ("cli/muster", "coordinator/muster-coordinator", "worker/muster-worker"):
        (folder / pathlib.Path(program).name).symlink_to(ROOT / "bazel-bin" / program)
    env = dict(slurm.env(), PATH=f"{folder}:{os.environ['PATH']}", HOME=str(folder), TMPDIR=str(folder), USER="bench")
    run("sbatch", f"--nodes={NODES}", f"--output={folder}/log", ROOT / "deploy/slurm/muster.sbatch",
        "bash", "-c", f"muster run --nodes {NODES} -- /bin/hostname && touch {folder}/finished", env=env, cwd=folder)
    wait_until(lambda: not slurm.run("squeue", "--noheader").strip(), 60, "Slurm's job to end")
    if not (folder / "finished").exists():
        sys.exit((folder / "log").read_text())


def measure(install):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-deployment."))
    try:
        start = time.monotonic()
        install(folder)
        return time.monotonic() - start
    finally:
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="one of these ways")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        ways = {"wheel": install_wheel, "bundle": install_bundle, "deb": install_packages}
        try:
            debian_12, debian_11 = minimal_debian("bookworm", stack), minimal_debian("bullseye", stack)
            ways["bundle-12"] = lambda folder: install_bundle(folder, debian_12)
            ways["bundle-11"] = lambda folder: install_bundle(folder, debian_11)
            ways["deb-12"] = lambda folder: install_packages(folder, debian_12, "apt-get update; apt-get install --yes")
        except namespaces.Unavailable as why:
            print(f"minimal systems are left out: {why}")
        if missing_programs():
            print(f"slurm is left out: missing {', '.join(missing_programs())}")
        else:
            slurm = stack.enter_context(SlurmCluster(NODES, 2))
            ways["slurm"] = lambda folder: start_in_slurm(folder, slurm)
        for name, install in ways.items():
            if args.only not in (None, name):
                continue
            seconds = [measure(install) for _ in range(args.rounds)]
            rounds_text = ", ".join(f"{s:.1f}" for s in seconds)
            print(f"{name:10} {statistics.median(seconds):6.1f} s   ({rounds_text})", flush=True)


if __name__ == "__main__":
    main()
