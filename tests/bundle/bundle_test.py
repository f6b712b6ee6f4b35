"""The bundle, unpacked out of reach of the build tree: on this system, on an older one, and without a system."""

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

from deploy.bundle import libraries, make_bundle
from tests.bundle import roots
from tests.support import namespaces
from tests.support.cluster import Cluster, binary, command_spec, training_spec

MAX_BYTES = 30_000_000
DOCUMENTS = ("LICENSE", "THIRD_PARTY_NOTICES.md")
BUNDLE = pathlib.Path("deploy/muster.tar.xz").absolute()
BINARIES = ("cli/muster", "coordinator/muster-coordinator", "trainer/muster-rank",
            "worker/muster-c10d-store", "worker/muster-mpi", "worker/muster-shim", "worker/muster-worker")
FILES = {"install.sh": "deploy/bundle/install.sh",
         **{f"share/grafana/{name}.json": f"deploy/grafana/{name}.json"
            for name in ("cluster", "control-plane", "job", "node")},
         **{f"share/prometheus/{name}.yml": f"deploy/prometheus/{name}.yml"
            for name in ("alert_rules", "prometheus", "recording_rules")},
         "share/slurm/muster.sbatch": "deploy/slurm/muster.sbatch",
         "share/systemd/muster-coordinator.service": "deploy/systemd/muster-coordinator.service",
         "share/systemd/muster-worker-job-user.conf": "deploy/systemd/muster-worker-job-user.conf",
         "share/systemd/muster-worker.service": "deploy/systemd/muster-worker.service"}
# Set by the user; must be passed unchanged to the user's command.
USERS_LIBRARIES = "/users/own/libraries"
# Prints a command's view of its environment; a minimal Python has no json.
LOOK = """
import os
maps = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if "/" in line}
print({"environment": dict(os.environ), "files": sorted(maps), "exe": os.readlink("/proc/self/exe")})
"""


def setUpModule():
    global DIRECTORY, PREFIX
    DIRECTORY = pathlib.Path(tempfile.mkdtemp(prefix="muster bundle."))
    unittest.addModuleCleanup(shutil.rmtree, DIRECTORY)
    with tarfile.open(BUNDLE) as tar:
        tar.extractall(DIRECTORY)
    PREFIX = DIRECTORY / "muster"


def run(*argv, **kwargs):
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=True, **kwargs).stdout


def training(name, **train):
    """Spec of a training on the system's dataset: the one of the build tree is out of reach."""
    return training_spec(name, dataset={"name": "fashion_mnist", "path": roots.DATASET}, **train)


def shared_objects(pid):
    """The libraries, including the loader, that a process has mapped; paths relative to the root of the mounts."""
    text = pathlib.Path(f"/proc/{pid}/maps").read_text()
    return {path for path in re.findall(r"^(?:\S+ +){5}(/.*)$", text, re.M) if ".so" in os.path.basename(path)}


class ContentTest(unittest.TestCase):
    def test_size(self):
        self.assertLessEqual(BUNDLE.stat().st_size, MAX_BYTES)

    def test_programs(self):
        for folder in ("bin", "libexec"):
            self.assertEqual({path.name for path in (PREFIX / folder).iterdir()},
                             {os.path.basename(path) for path in BINARIES})
        self.assertNotIn("INTERP", run("readelf", "-lW", PREFIX / "bin/muster"))

    def listed(self, path):
        """{soname: path or None} as found by the bundle's loader with only its own libc in the library path."""
        glibc = PREFIX / "lib/glibc"
        loader = glibc / os.path.basename(roots.LOADER)
        out = run(loader, "--inhibit-cache", "--library-path", glibc, path, env={"LD_TRACE_LOADED_OBJECTS": "1"})
        found = dict(re.findall(r"^\t(\S+) => (.*?)(?: \(0x.*\))?$", out, re.M))
        return {name: None if place == "not found" else pathlib.Path(place).resolve() for name, place in found.items()}

    def test_contains_every_library(self):
        """Includes indirect dependencies, except libraries that a host with a GPU provides."""
        for path in [*(PREFIX / "libexec").iterdir(), *(PREFIX / "lib").glob("*.so*")]:
            if PREFIX / "lib" == path.parent and not path.name.startswith("libmuster"):
                continue
            libraries = self.listed(path)
            self.assertIn("libc.so.6", libraries)
            for name, place in libraries.items():
                with self.subTest(file=path.name, library=name):
                    if place is None:
                        self.assertTrue(libraries.LEFT_OUT.match(name))
                        self.assertNotEqual(path.parent.name, "libexec", "a program must start without it")
                    else:
                        self.assertIn(PREFIX.resolve(), place.parents)

    def test_contains_no_unused_library(self):
        """Every file in lib/ is loaded by a program or plug-in."""
        plugins = {path for path in (PREFIX / "lib").glob("libmuster*")}
        needed = set()
        for path in [*(PREFIX / "libexec").iterdir(), *plugins]:
            needed.update(place.name for place in self.listed(path).values() if place is not None)
        there = {path.name for path in (PREFIX / "lib").glob("*.so*") if path not in plugins}
        self.assertEqual(there - needed, set())

    def test_stripped(self):
        for path in (PREFIX / "libexec").iterdir():
            self.assertNotIn(".symtab", run("readelf", "-SW", path))

    def test_contains_own_license_and_notices(self):
        for name in DOCUMENTS:
            self.assertEqual((PREFIX / "share/doc" / name).read_bytes(), pathlib.Path(name).read_bytes())
        # Each bundled source package has an entry in the notices.
        packages = (PREFIX / "share/doc/PACKAGES").read_text()
        notices = pathlib.Path("THIRD_PARTY_NOTICES.md").read_text()
        for source in set(re.findall(r"^\S+ \(source (\S+) ", packages, re.M)):
            self.assertIn(f"| {source} |", notices)

    def test_contains_licenses(self):
        packages = (PREFIX / "share/doc/PACKAGES").read_text()
        for path in [*(PREFIX / "lib").glob("*.so*"), *(PREFIX / "lib/glibc").iterdir()]:
            if not path.name.startswith("libmuster"):
                self.assertRegex(packages, rf"(?m)^\S+ \(source .*\):.* {re.escape(path.name)}( |$)")
        for package in re.findall(r"^(\S+) \(source", packages, re.M):
            text = (PREFIX / "share/doc" / package / "copyright").read_text()
            for name in re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", text):
                self.assertTrue((PREFIX / "share/doc/common-licenses" / name).is_file(), f"{package}: {name}")

    def test_build_is_reproducible(self):
        """Independent of the user who builds it and of the order of files."""
        again = DIRECTORY / BUNDLE.name
        arguments = [f"--program={binary(path)}" for path in reversed(BINARIES)]
        arguments += [f"--plugin={path}" for path in pathlib.Path("kernels/cuda").glob("*.so")]
        arguments += [f"--document={name}" for name in DOCUMENTS]
        arguments += [f"--file={path}={source}" for path, source in FILES.items()]
        arguments += [f"--archive={path}" for path in pathlib.Path("../system/archives").glob("*.a")]
        arguments += [f"--out={again}", f"--launcher={binary('deploy/bundle/launcher')}"]
        run(sys.executable, "-B", make_bundle.__file__, *arguments, preexec_fn=lambda: os.umask(0o77))
        self.assertTrue(again.read_bytes() == BUNDLE.read_bytes())


class BundleCluster(Cluster):
    """A cluster of the unpacked bundle's programs in a root."""

    def __init__(self, make_root, **kwargs):
        super().__init__(**kwargs)
        self.root = None
        self._make_root = make_root

    def __enter__(self):
        try:
            self.root = self._make_root(self.directory)
        except BaseException:
            shutil.rmtree(self.directory)
            raise
        self.resources.callback(self.root.close)
        return super().__enter__()

    def site(self, name):
        site = super().site(name)
        program = "muster-coordinator" if name == "coordinator" else "muster-worker"
        site.program, site.prefix = str(PREFIX / "bin" / program), self.root.prefix()
        return site

    def environment(self):
        return dict(super().environment(), LD_LIBRARY_PATH=USERS_LIBRARIES, TMPDIR="/tmp")

    def command(self, *args):
        return [*self.root.prefix(), str(PREFIX / "bin/muster"), *map(str, args)]

    @property
    def address(self):
        return f"{roots.HOST_NAME}:{self.coordinator.addresses['grpc'].rsplit(':', 1)[1]}"


class RunTest:
    """Tests that run in every root; subclasses create the root."""

    HOST_GLIBC = None  # pattern of the host's libraries, if Muster's processes use them instead of the bundle's
    PYTHON = "/usr/bin/python3"

    def root(self, directory):
        raise NotImplementedError

    def cluster(self, **kwargs):
        try:
            return self.enterContext(BundleCluster(self.root, **kwargs))
        except namespaces.Unavailable as why:
            self.skipTest(str(why))

    def check_libraries(self, cluster):
        """Checks that the bundle's processes use the bundle's libraries; returns the number of processes."""
        checked = 0
        for pid, command in cluster.processes():
            objects = {path.removeprefix(cluster.root.path) for path in shared_objects(pid)}
            outside = {path for path in objects if not path.startswith(f"{PREFIX}/lib/")}
            if outside == objects:
                continue  # the process that holds the mounts
            checked += 1
            if self.HOST_GLIBC is None:
                self.assertEqual(outside, set(), command)
            else:
                self.assertEqual({path for path in outside if not self.HOST_GLIBC.match(path)}, set(), command)
                self.assertNotEqual(outside, set(), command)
        return checked

    def test_cluster(self):
        """Version, training on two ranks, and a command's environment; the coordinator is reached by a host name."""
        cluster = self.cluster(nodes=1, slots=2)
        self.assertRegex(cluster.muster("version").stdout, r"^muster \d")

        resources = {"nodes": 1, "ranks_per_node": 2}
        job = cluster.submit(training("long", max_steps=1_000_000, resources=resources))
        cluster.wait_for_step(job, 1)
        # Coordinator, worker, and two shims with their ranks.
        self.assertGreaterEqual(self.check_libraries(cluster), 6)
        cluster.muster("cancel", job)
        job = cluster.submit(training("short", max_steps=20, resources=resources))
        self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
        if self.PYTHON is not None:
            self.check_command(cluster)

    def check_command(self, cluster):
        job = cluster.submit(command_spec("look", self.PYTHON, "-c", LOOK))
        self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
        seen = ast.literal_eval(cluster.muster("logs", job).stdout)
        self.assertEqual(seen["environment"]["LD_LIBRARY_PATH"], USERS_LIBRARIES)
        self.assertEqual(seen["environment"]["PATH"], os.environ["PATH"])
        for name, value in seen["environment"].items():
            self.assertNotIn(str(PREFIX), value, name)
            self.assertTrue(name == "LD_LIBRARY_PATH" or not name.startswith("LD_"), name)
        self.assertTrue(any("/ld-" in path for path in seen["files"]), seen["files"])
        for path in [*seen["files"], seen["exe"]]:
            self.assertNotIn(str(PREFIX), path)

    def test_local(self):
        cluster = self.cluster()
        spec = cluster.write_spec(training("local", max_steps=10))
        self.assertIn("test accuracy", cluster.muster("local", spec).stdout)
        # The bundle's own program can run as a command, even in an empty root.
        self.assertIn("protocol", cluster.muster("local", "--", PREFIX / "bin/muster", "version").stdout)


class HostTest(RunTest, unittest.TestCase):
    """This system: its glibc is that of the build, so its loader and C library are used."""

    HOST_GLIBC = re.compile(r"/(usr/)?lib(64)?/([\w-]+/)?(ld-linux-x86-64|libc|libm|libmvec|libpthread)\.so")

    def root(self, directory):
        return roots.Root(directory)


class OlderTest(RunTest, unittest.TestCase):
    """This system with a loader that reports an older version: Muster uses its own loader, commands use the host's."""

    def root(self, directory):
        return roots.OlderRoot(directory)


class EmptyTest(RunTest, unittest.TestCase):
    """A root with only the bundle and the dataset."""

    PYTHON = None

    def root(self, directory):
        empty = directory / "root"
        empty.mkdir()
        return roots.OtherRoot(directory, empty, [directory, DIRECTORY])


class DebianTest(RunTest, unittest.TestCase):
    """Debian 11, whose glibc is 2.31."""

    @classmethod
    def setUpClass(cls):
        cls.debian = pathlib.Path(tempfile.mkdtemp(prefix="muster-debian."))
        cls.addClassCleanup(shutil.rmtree, cls.debian)
        try:
            roots.debian("bullseye", cls.debian, ["python3-minimal"])
        except namespaces.Unavailable as why:
            raise unittest.SkipTest(str(why)) from why

    def root(self, directory):
        return roots.OtherRoot(directory, self.debian, [directory, DIRECTORY])
