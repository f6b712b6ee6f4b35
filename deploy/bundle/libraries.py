"""The shared libraries that programs need: which they are, how programs find them, and under which licences they are.

Used by the makers of packages for machines without the libraries of the build: deploy/bundle and deploy/python.

Dependencies are found from the files' DT_NEEDED entries, as this machine's loader resolves them. Libraries that must
match the host's driver or network are excluded, together with their own dependencies: the NVIDIA driver's, CUDA's with
cuDNN and NCCL, and MPI's (LEFT_OUT). A host that uses them has them installed.
"""

import collections
import os
import pathlib
import re
import subprocess
import sys

LEFT_OUT = re.compile(r"lib(cuda|cublas|cudnn|cufft|curand|cusolver|cusparse|cupti|nccl|nv|mpi)")
LIBC = "libc.so.6"


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


def documents(names):
    """Returns {path: bytes}: PACKAGES, each package's copyright file, and the common licences that they refer to.

    `names`: {package: names of its files}.
    """
    texts, lines = {}, []
    for package, files in sorted(names.items()):
        version = run("dpkg-query", "-W", "-f", "${source:Package} ${source:Version}", package)
        package = package.split(":")[0]
        lines.append(f"{package} (source {version}): {' '.join(sorted(files))}\n")
        terms = pathlib.Path(f"/usr/share/doc/{package}/copyright").read_bytes()
        texts[f"{package}/copyright"] = terms
        for name in set(re.findall(rb"/usr/share/common-licenses/([\w.-]*\w)", terms)):
            licence = pathlib.Path("/usr/share/common-licenses", name.decode()).read_bytes()
            texts[f"common-licenses/{name.decode()}"] = licence
    texts["PACKAGES"] = "".join(lines).encode()
    return texts


class Carried:
    """The shared libraries that a package of programs and plug-ins carries, except those of the C library's package."""

    def __init__(self, programs, plugins, archives):
        """`archives`: static libraries that the programs contain, for their licences."""
        found = closure([*programs, *plugins])
        contained = sorted({os.path.realpath(archive) for archive in archives})
        packages = owners([*found.values(), *contained])
        self.libc_path = found[LIBC]
        self.libc_package = packages[self.libc_path]
        self.files = {name: path for name, path in found.items() if packages[path] != self.libc_package}
        for path in self.files.values():
            if dynamic(path, "RUNPATH"):
                sys.exit(f"{path} has a RUNPATH, so its dependencies would not be found in the package")
        self._names = collections.defaultdict(list)  # package: names of files
        for name, path in self.files.items():
            self._names[packages[path]].append(name)
        for path in contained:
            self._names[packages[path]].append(os.path.basename(path))

    def add_libc(self):
        """Returns {name: path} of the C library's shared objects, which then count as carried."""
        objects = shared_objects(self.libc_package, os.path.dirname(self.libc_path))
        self._names[self.libc_package] = list(objects)
        return objects

    def documents(self):
        return documents(self._names)
