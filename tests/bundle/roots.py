"""Root file systems for testing the bundle, in which the build tree is out of reach.

Each is the host's root or another one, with mounts in a namespace of the test's processes that disappear with them.
"""

import os
import pathlib
import re
import shutil
import subprocess

from tests.support import namespaces

LOADER = "/lib64/ld-linux-x86-64.so.2"
DATASET = "/usr/share/datasets/fashion-mnist"
# Name of 127.0.0.1 in the /etc/hosts of every root.
HOST_NAME = "coordinator.bundle.test"
HOSTS = f"127.0.0.1 localhost {HOST_NAME}\n"


def build_tree():
    """Bazel's output tree, which contains the test's folder."""
    place = os.path.realpath(os.environ["TEST_SRCDIR"])
    return place.split("/execroot/")[0]


class Root:
    """The host's root with other mounts, whose files are in `directory`."""

    path = ""  # path of the new root on the host

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        (self.directory / "hosts").write_text(HOSTS)
        self._mounts = namespaces.Mounts(self._script())

    def _script(self):
        return f"mount --bind {self.directory}/hosts /etc/hosts\nmount -t tmpfs tmpfs '{build_tree()}'"

    def prefix(self):
        return self._mounts.prefix()

    def close(self):
        self._mounts.close()


class OlderRoot(Root):
    """The host's root with a loader that is patched to report an old glibc."""

    def _script(self):
        loader = self.directory / "loader"
        loader.write_bytes(re.sub(rb"( release version 2\.)\d\d", rb"\g<1>01", pathlib.Path(LOADER).read_bytes()))
        loader.chmod(0o755)
        return f"{super()._script()}\nmount --bind {loader} {os.path.realpath(LOADER)}"


class OtherRoot(Root):
    """The folder `path` as the root; the folders `shared` are mounted at the same paths as on the host."""

    def __init__(self, directory, path, shared):
        self.path = str(path)
        self._shared = shared
        super().__init__(directory)

    def _script(self):
        lines = [f"cd '{self.path}'", "mkdir -p proc dev/shm etc tmp", "mount --rbind /proc proc",
                 "mount -t tmpfs tmpfs dev/shm"]
        lines += [f"touch dev/{name}; mount --bind /dev/{name} dev/{name}" for name in ("null", "urandom")]
        lines.append("cp '{}' etc/hosts".format(self.directory / "hosts"))
        for folder in (DATASET, *self._shared):
            lines += [f"mkdir -p '.{folder}'", f"mount --bind '{folder}' '.{folder}'"]
        return "\n".join(lines)

    def prefix(self):
        return [*super().prefix(), "unshare", f"--root={self.path}"]


class SystemCopy(OtherRoot):
    """The root `lower`, on top of which files can be written; they are kept in memory. `path` is an empty folder."""

    def __init__(self, directory, path, shared, lower="/"):
        self._lower = lower
        super().__init__(directory, path, shared)

    def _script(self):
        script = super()._script().replace(f"cd '{self.path}'", "cd root")
        return (f"mount -t tmpfs tmpfs '{self.path}'\ncd '{self.path}'\nmkdir upper work root\n"
                f"mount -t overlay -o lowerdir='{self._lower}',upperdir=upper,workdir=work overlay root\n{script}")

    def prefix(self):
        return [*Root.prefix(self), "unshare", f"--root={self.path}/root"]


def debian(suite, path, packages):
    """Installs another release of Debian from the mirror that this machine uses.

    Raises Unavailable with the reason if that is impossible.
    """
    environment = dict(os.environ, PATH=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if os.geteuid() != 0:
        raise namespaces.Unavailable("only root can install another Debian")
    for tool in ("apt-get", "debootstrap"):
        if shutil.which(tool, path=environment["PATH"]) is None:
            raise namespaces.Unavailable(f"{tool} is not installed")
    try:
        targets = subprocess.run(["apt-get", "indextargets", "--format", "$(LABEL) $(SITE)"], capture_output=True,
                                 text=True, check=True).stdout
        mirrors = re.findall(r"^Debian (\S+)$", targets, re.M)
        if not mirrors:
            raise namespaces.Unavailable("apt has no Debian mirror configured")
        # debootstrap mounts /proc and /sys there; a separate namespace hides them, above all from
        # the removal of the folder.
        subprocess.run(["unshare", "--mount", "debootstrap", "--variant=minbase",
                        f"--include={','.join(packages)}", suite, path, mirrors[0]],
                       capture_output=True, text=True, check=True, env=environment)
    except subprocess.CalledProcessError as error:
        last = (error.stdout + error.stderr).strip().splitlines()[-1:]
        raise namespaces.Unavailable(f"no Debian {suite}: {''.join(last)}") from error
