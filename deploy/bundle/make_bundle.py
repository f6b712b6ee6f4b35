"""Makes a relocatable tarball of programs: make_bundle.py --out NAME.tar.xz --launcher FILE --program FILE…

NAME/bin/        the launcher under each program's name (one file, hard-linked)
NAME/libexec/    the programs, which find lib/ relative to their own path ($ORIGIN)
NAME/lib/        the plug-ins and the libraries that programs and plug-ins need, unmodified, by soname
NAME/lib/glibc/  the loader, the C library and all other shared objects of its package, for hosts with an older glibc
NAME/share/doc/  the documents (--document), such as LICENSE; PACKAGES, the source packages of the libraries, also of
                 those that the programs contain (--archive); each package's copyright file and common licences

Dependencies are found from the files' DT_NEEDED entries, as this machine's loader resolves them. Libraries that must
match the host's driver or network are excluded, together with their own dependencies: the NVIDIA driver's, CUDA's with
cuDNN and NCCL, and MPI's (LEFT_OUT). A host that uses them has them installed.

The output is reproducible: the same input gives the same bytes.
"""

import argparse
import collections
import io
import lzma
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

LEFT_OUT = re.compile(r"lib(cuda|cublas|cudnn|cufft|curand|cusolver|cusparse|cupti|nccl|nv|mpi)")
LIBC = "libc.so.6"
# 1980, because tar warns about implausibly old files.
MTIME = 315532800
# Nearly the compression of higher presets in a tenth of the time.
XZ_PRESET = 2


def run(*argv, check=True):
    try:
        result = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        sys.exit(f"{argv[0]} is not installed; run deploy/install_dependencies.sh")
    if check and result.returncode != 0:
        sys.exit(f"{' '.join(map(str, argv))}: {result.stderr.strip() or result.returncode}")
    return result.stdout


def dynamic(path, tag):
    """Returns the values of a tag of the dynamic section: NEEDED, RPATH, RUNPATH, SONAME."""
    return re.findall(rf"^  {tag} +(.*)$", run("objdump", "-p", path), re.M)


def resolved(path):
    """Returns {soname: path} of all libraries that the loader would load for a file, without those it cannot find."""
    return dict(re.findall(r"^\t(\S+) => (/\S+) \(0x", run("ldd", path), re.M))


def closure(roots):
    """Returns {soname: path} of the libraries to include; the C library represents its whole package."""
    found = {}
    for root in roots:
        paths = resolved(root)
        queue = [root]
        while queue:
            path = queue.pop()
            for soname in dynamic(path, "NEEDED"):
                if soname in found or LEFT_OUT.match(soname) or soname.startswith("ld-linux"):
                    continue
                if soname not in paths:
                    sys.exit(f"{root}: cannot find {soname}, which {path} needs")
                found[soname] = paths[soname]
                queue.append(paths[soname])
    return found


def owners(paths):
    """Returns {path: package}. With a merged /usr, the loader's and dpkg's paths may differ by that prefix."""
    spellings = {}
    for path in paths:
        real = os.path.realpath(path)
        for name in (path, real):
            bare = name[len("/usr"):] if name.startswith("/usr/") else name
            spellings.update({bare: path, "/usr" + bare: path})
    # Not checked: dpkg fails if it does not know one of the spellings.
    packages = {}
    for names, name in re.findall(r"^(\S+(?:, \S+)*): (/.*)$", run("dpkg", "-S", *spellings, check=False), re.M):
        if name in spellings:
            packages.setdefault(spellings[name], names.split(", ")[0])
    missing = [path for path in paths if path not in packages]
    if missing:
        sys.exit(f"not part of any package, so the licence is unknown: {' '.join(missing)}")
    return packages


def shared_objects(package, folder):
    """Returns {name: path} of a package's shared objects in one folder."""
    names = [os.path.basename(line) for line in run("dpkg", "-L", package).splitlines()]
    return {name: f"{folder}/{name}" for name in names
            if re.search(r"\.so(\.\d+)*$", name) and os.path.isfile(f"{folder}/{name}")}


def relocatable(path, library_path, scratch):
    """Returns the stripped file, with `library_path` prepended to its library search path.

    Uses RPATH instead of RUNPATH, because RPATH also applies to dependencies of the libraries, and precedes the user's
    LD_LIBRARY_PATH, which may contain other builds of the same libraries.
    """
    copy = scratch / path.name
    run("strip", "-o", copy, path)
    linked = [p for tag in ("RPATH", "RUNPATH") for value in dynamic(path, tag) for p in value.split(":")]
    run("patchelf", "--force-rpath", "--set-rpath", ":".join([library_path, *linked]), copy)
    return copy.read_bytes()


class Tarball:
    """A tar file of regular files, sorted by name."""

    def __init__(self, folder):
        self._folder = folder
        self._files = {}  # name: (mode, bytes)

    def add(self, name, data, mode=0o644):
        if self._files.setdefault(name, (mode, data)) != (mode, data):
            sys.exit(f"different contents for {name}")

    def write(self, path):
        seen = {}
        folders = set()
        with lzma.open(path, "wb", preset=XZ_PRESET) as compressed, \
                tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for name, (mode, data) in sorted(self._files.items()):
                name = f"{self._folder}/{name}"
                for parent in reversed(pathlib.PurePath(name).parents[:-1]):
                    if parent not in folders:
                        folders.add(parent)
                        tar.addfile(self._entry(str(parent), tarfile.DIRTYPE, 0o755))
                if data in seen:
                    entry = self._entry(name, tarfile.LNKTYPE, mode)
                    entry.linkname = seen[data]
                    tar.addfile(entry)
                    continue
                if mode & 0o100:
                    seen[data] = name
                entry = self._entry(name, tarfile.REGTYPE, mode)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))

    @staticmethod
    def _entry(name, kind, mode):
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.mtime = kind, mode, MTIME
        return entry


def make(tarball, launcher, programs, plugins, documents, archives):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for program in programs:
            tarball.add(f"bin/{program.name}", launcher.read_bytes(), 0o755)
            tarball.add(f"libexec/{program.name}", relocatable(program, "$ORIGIN/../lib", scratch), 0o755)
        for plugin in plugins:
            tarball.add(f"lib/{plugin.name}", relocatable(plugin, "$ORIGIN", scratch))
    for document in documents:
        tarball.add(f"share/doc/{document.name}", document.read_bytes())

    libraries = closure([*programs, *plugins])
    contained = sorted({os.path.realpath(archive) for archive in archives})
    packages = owners([*libraries.values(), *contained])
    libc = libraries[LIBC]
    carried = collections.defaultdict(list)  # package: sonames
    for name, path in shared_objects(packages[libc], os.path.dirname(libc)).items():
        # The loader is executable.
        tarball.add(f"lib/glibc/{name}", pathlib.Path(path).read_bytes(), 0o755 if name.startswith("ld-") else 0o644)
        carried[packages[libc]].append(name)
    for name, path in libraries.items():
        if packages[path] == packages[libc]:
            continue
        if dynamic(path, "RUNPATH"):
            sys.exit(f"{path} has a RUNPATH, so its dependencies would not be found in the bundle")
        tarball.add(f"lib/{name}", pathlib.Path(path).read_bytes())
        carried[packages[path]].append(name)
    for path in contained:
        carried[packages[path]].append(os.path.basename(path))

    lines = []
    for package, names in sorted(carried.items()):
        version = run("dpkg-query", "-W", "-f", "${source:Package} ${source:Version}", package)
        package = package.split(":")[0]
        lines.append(f"{package} (source {version}): {' '.join(sorted(names))}\n")
        terms = pathlib.Path(f"/usr/share/doc/{package}/copyright").read_bytes()
        tarball.add(f"share/doc/{package}/copyright", terms)
        for name in set(re.findall(rb"/usr/share/common-licenses/([\w.-]*\w)", terms)):
            text = pathlib.Path("/usr/share/common-licenses", name.decode()).read_bytes()
            tarball.add(f"share/doc/common-licenses/{name.decode()}", text)
    tarball.add("share/doc/PACKAGES", "".join(lines).encode())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--launcher", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--plugin", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--document", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--archive", type=pathlib.Path, action="append", default=[])
    options = parser.parse_args()
    tarball = Tarball(options.out.name.split(".")[0])
    make(tarball, options.launcher, options.program, options.plugin, options.document, options.archive)
    tarball.write(options.out)


if __name__ == "__main__":
    main()
