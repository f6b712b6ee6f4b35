"""The wheel: its contents, and a cluster of the programs that pip installs from it without a network."""

import base64
import csv
import hashlib
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from deploy.bundle import libraries
from deploy.python import make_wheel
from tests.support.cluster import Cluster, command_spec

WHEEL = next(pathlib.Path("deploy/wheel").absolute().glob("*.whl"))
VERSION = WHEEL.name.split("-")[1]
PROGRAMS = {"muster", "muster-c10d-store", "muster-coordinator", "muster-mpi", "muster-rank", "muster-shim",
            "muster-worker"}
AUDITWHEEL = pathlib.Path(__file__).resolve().parents[2] / ".venv-tests/bin/auditwheel"

# Reports progress, says that it runs, and ends when it is asked for a checkpoint.
SCRIPT = """
import time
import muster

requested = []
muster.on_checkpoint_request(lambda: requested.append(True))
muster.progress(step=120, total_steps=1000, loss=0.25, phase="training")
while not requested:
    time.sleep(0.01)
muster.progress(step=121, loss=0.125)
print("saved", flush=True)
"""


def run(*argv, **kwargs):
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=True, **kwargs).stdout


def setUpModule():
    global VENV, PACKAGE
    VENV = pathlib.Path(tempfile.mkdtemp(prefix="muster venv."))
    unittest.addModuleCleanup(shutil.rmtree, VENV)
    run(sys.executable, "-m", "venv", VENV)
    run(VENV / "bin/python", "-m", "pip", "install", "--no-index", "--disable-pip-version-check", WHEEL)
    PACKAGE = next(VENV.glob("lib/python*/site-packages/muster"))


class ContentTest(unittest.TestCase):
    def setUp(self):
        self.zip = self.enterContext(zipfile.ZipFile(WHEEL))

    def info(self, name):
        return self.zip.read(f"muster-{VERSION}.dist-info/{name}").decode()

    def test_record_lists_every_file(self):
        record = {name: (digest, size) for name, digest, size in csv.reader(io.StringIO(self.info("RECORD")))}
        self.assertEqual(set(record), set(self.zip.namelist()))
        for name, (digest, size) in record.items():
            if name.endswith("/RECORD"):
                continue
            data = self.zip.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            self.assertEqual((digest, int(size)), (f"sha256={expected}", len(data)), name)

    def test_name_and_metadata_agree(self):
        self.assertRegex(self.info("METADATA"), rf"(?m)^Name: muster\nVersion: {re.escape(VERSION)}$")
        self.assertIn(f"Tag: {WHEEL.stem.split('-', 2)[2]}\n", self.info("WHEEL"))
        self.assertIn("Root-Is-Purelib: false\n", self.info("WHEEL"))

    def elf_files(self):
        files = [path for path in [*(PACKAGE / "bin").iterdir(), *(PACKAGE / "lib").iterdir()]
                 if path.read_bytes()[:4] == b"\x7fELF"]
        self.assertGreater(len(files), len(PROGRAMS))
        return files

    def test_platform_tag_is_that_of_the_symbols(self):
        newest = max(make_wheel.required_glibc(path) for path in self.elf_files())
        self.assertRegex(WHEEL.name, r"-py3-none-manylinux_{}_{}_\w+\.whl$".format(*newest))

    def test_files_need_only_the_wheel_and_the_c_library(self):
        # The other libraries are searched where the program or plug-in that loads them says.
        for path in [*(PACKAGE / "bin").iterdir(), *(PACKAGE / "lib").glob("libmuster*")]:
            for name, place in re.findall(r"^\t(\S+) => (.*?)(?: \(0x.*\))?$", run("ldd", path), re.M):
                with self.subTest(file=path.name, library=name):
                    if libraries.LEFT_OUT.match(name):
                        self.assertNotEqual(path.parent.name, "bin", "a program must start without it")
                    elif not re.match(r"lib(c|m|mvec|pthread|rt|dl|resolv)\.so|ld-linux", name):
                        self.assertEqual(pathlib.Path(place).resolve(), (PACKAGE / "lib" / name).resolve())

    def test_contains_licenses(self):
        for name in ("LICENSE", "THIRD_PARTY_NOTICES.md"):
            self.assertEqual(self.info(f"licenses/{name}"), pathlib.Path(name).read_text())
        packages = self.info("licenses/PACKAGES")
        for path in (PACKAGE / "lib").glob("*.so*"):
            if not path.name.startswith("libmuster"):
                self.assertRegex(packages, rf"(?m)^\S+ \(source .*\):.* {re.escape(path.name)}( |$)")
        for package in re.findall(r"^(\S+) \(source", packages, re.M):
            self.info(f"licenses/{package}/copyright")


class AuditwheelTest(unittest.TestCase):
    @unittest.skipUnless(AUDITWHEEL.exists(), "no auditwheel in .venv-tests; run tests/support/setup_venv.sh")
    def test_finds_the_same_platform_tag(self):
        shown = " ".join(run(AUDITWHEEL, "show", WHEEL).split())
        tag = WHEEL.stem.split("-")[-1]
        self.assertIn(f'is consistent with the following platform tag: "{tag}"', shown)


class VenvCluster(Cluster):
    """A cluster of the programs in the virtual environment."""

    def site(self, name):
        site = super().site(name)
        site.program = str(VENV / "bin" / ("muster-coordinator" if name == "coordinator" else "muster-worker"))
        return site

    def command(self, *args):
        return [str(VENV / "bin/muster"), *map(str, args)]


class InstalledTest(unittest.TestCase):
    def test_commands(self):
        self.assertEqual({path.name for path in (VENV / "bin").glob("muster*")}, PROGRAMS)
        self.assertEqual(run(VENV / "bin/muster", "--version").split()[:2], ["muster", VERSION])
        self.assertEqual(run(VENV / "bin/muster-worker", "--version").split(), ["muster-worker", VERSION])

    def test_script_reports_progress_and_saves(self):
        cluster = self.enterContext(VenvCluster(nodes=1))
        job = cluster.submit(command_spec("script", str(VENV / "bin/python"), "-c", SCRIPT, grace_period="20s"))
        cluster.wait_for_step(job, 120)
        self.assertIn("step 120/1000", cluster.muster("describe", job).stdout)
        self.assertNotIn("Warnings", cluster.muster("describe", job).stdout)
        listed = json.loads(cluster.muster("list", "-o", "json").stdout)
        self.assertEqual([j["progress"]["loss"] for j in listed], [0.25])
        cluster.muster("cancel", job)
        cluster.wait(job, check=False)
        self.assertIn("\nsaved\n", cluster.muster("logs", job).stdout)
        self.assertEqual(int(cluster.get(job)["progress"]["step"]), 121)

    def test_finds_nvidia_libraries_beside_it(self):
        folder = PACKAGE.parent / "nvidia/cudnn/lib"
        folder.mkdir(parents=True)
        self.addCleanup(shutil.rmtree, folder.parents[1])
        # `muster local` passes its environment on.
        shown = run(VENV / "bin/muster", "local", "--", "/bin/sh", "-c", "echo =$MUSTER_CUDA_LIBRARY_PATH")
        self.assertIn(f"={folder.resolve()}\n", shown)

    def test_script_runs_outside_of_muster(self):
        code = "import muster; muster.on_checkpoint_request(print); muster.progress(step=1, loss=0.5); print('done')"
        env = {"PATH": "/usr/bin:/bin"}
        self.assertEqual(run(VENV / "bin/python", "-c", code, env=env), "done\n")


if __name__ == "__main__":
    unittest.main()
