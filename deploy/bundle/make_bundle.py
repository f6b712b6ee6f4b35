"""Makes a relocatable tarball of programs: make_bundle.py --out NAME.tar.xz --launcher FILE --program FILE…

NAME/bin/        the launcher under each program's name (one file, hard-linked)
NAME/libexec/    the programs, which find lib/ relative to their own path ($ORIGIN)
NAME/lib/        the plug-ins and the libraries that programs and plug-ins need, unmodified, by soname
NAME/lib/glibc/  the loader, the C library and all other shared objects of its package, for hosts with an older glibc
NAME/share/doc/  the documents (--document), such as LICENSE; PACKAGES, the source packages of the libraries, also of
                 those that the programs contain (--archive); each package's copyright file and common licences
NAME/PATH        other files (--file PATH=FILE)

deploy/bundle/libraries.py describes which libraries are included. The output is reproducible: the same input gives the
same bytes.
"""

import argparse
import io
import lzma
import pathlib
import sys
import tarfile
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[2]))

from deploy.bundle import libraries  # noqa: E402

# 1980, because tar warns about implausibly old files.
MTIME = 315532800
# Nearly the compression of higher presets in a tenth of the time. The dictionary holds several programs, which contain the
# same libraries; unpacking needs as much memory.
XZ_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 2, "dict_size": 64 << 20}]


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
        with lzma.open(path, "wb", filters=XZ_FILTERS) as compressed, \
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


def make(tarball, launcher, programs, plugins, documents, archives, files):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for program in programs:
            tarball.add(f"bin/{program.name}", launcher.read_bytes(), 0o755)
            tarball.add(f"libexec/{program.name}", libraries.relocatable(program, "$ORIGIN/../lib", scratch), 0o755)
        for plugin in plugins:
            tarball.add(f"lib/{plugin.name}", libraries.relocatable(plugin, "$ORIGIN", scratch))
    for document in documents:
        tarball.add(f"share/doc/{document.name}", document.read_bytes())

    for file in files:
        path, source = file.split("=", 1)
        tarball.add(path, pathlib.Path(source).read_bytes(), 0o755 if path.endswith(".sh") else 0o644)

    carried = libraries.Carried(programs, plugins, archives)
    for name, path in carried.add_libc().items():
        # The loader is executable.
        tarball.add(f"lib/glibc/{name}", pathlib.Path(path).read_bytes(), 0o755 if name.startswith("ld-") else 0o644)
    for name, path in carried.files.items():
        tarball.add(f"lib/{name}", pathlib.Path(path).read_bytes())
    for name, data in carried.documents().items():
        tarball.add(f"share/doc/{name}", data)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--launcher", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--plugin", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--document", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--archive", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--file", action="append", default=[])
    options = parser.parse_args()
    tarball = Tarball(options.out.name.split(".")[0])
    make(tarball, options.launcher, options.program, options.plugin, options.document, options.archive,
         options.file)
    tarball.write(options.out)


if __name__ == "__main__":
    main()
