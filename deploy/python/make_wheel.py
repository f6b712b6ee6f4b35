"""Makes a Python wheel of the programs: make_wheel.py --out FOLDER --program FILE… --module FILE… and others

muster/                     the modules
muster/bin/                 the programs, which find ../lib relative to their own path ($ORIGIN)
muster/lib/                 the plug-ins and the libraries that programs and plug-ins need, unmodified, by soname
muster-VERSION.dist-info/   METADATA, WHEEL, RECORD, entry_points.txt; licenses/ with the documents (--document), and
                            with PACKAGES and the copyright files of the libraries, also of those that the programs
                            contain (--archive)

The C library is the host's: the platform tag manylinux_X_Y names the oldest version that has all symbols which the
files need. deploy/bundle/libraries.py describes which libraries are included. The output is reproducible.
"""

import argparse
import base64
import hashlib
import pathlib
import platform
import re
import sys
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[2]))

from deploy.bundle import libraries  # noqa: E402

# The first time that a zip file can represent.
TIME = (1980, 1, 1, 0, 0, 0)

METADATA = """\
Metadata-Version: 2.1
Name: muster
Version: {version}
Summary: Runs distributed training jobs on a cluster of Linux machines
License: Apache-2.0
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Requires-Python: >=3.8
Description-Content-Type: text/markdown

# Muster

The programs `muster`, `muster-coordinator`, `muster-worker` and `muster-rank`, and a module for scripts that run as ranks:

```python
import muster

muster.progress(step=step, total_steps=1000, loss=loss)
muster.on_checkpoint_request(request_stop)
```
"""


def required_glibc(path):
    """Returns the newest version (major, minor) of glibc whose symbols a file needs."""
    newest = (0, 0)
    shown = libraries.run("objdump", "-p", path)
    for version in re.findall(r"^ +0x[0-9a-f]+ 0x[0-9a-f]+ \d+ GLIBC_(\S+)$", shown, re.M):
        if not re.fullmatch(r"[\d.]+", version):
            sys.exit(f"{path} needs GLIBC_{version}, which no platform tag describes")
        newest = max(newest, tuple(map(int, version.split(".")[:2])))
    return newest


class Wheel:
    """The files of a wheel, written with their RECORD."""

    def __init__(self, version):
        self._info = f"muster-{version}.dist-info"
        self._version = version
        self._files = {}  # name: (mode, bytes)

    def add(self, name, data, mode=0o644):
        self._files[name] = (mode, data)

    def add_info(self, name, text):
        self.add(f"{self._info}/{name}", text if isinstance(text, bytes) else text.encode())

    def write(self, folder, tag):
        self.add_info("WHEEL", f"Wheel-Version: 1.0\nGenerator: make_wheel\nRoot-Is-Purelib: false\nTag: {tag}\n")
        record = "".join(f"{name},sha256={self._digest(data)},{len(data)}\n"
                         for name, (_, data) in sorted(self._files.items()))
        self.add_info("RECORD", f"{record}{self._info}/RECORD,,\n")
        # The metadata last, as recommended.
        names = sorted(self._files, key=lambda name: (name.startswith(self._info), name))
        with zipfile.ZipFile(folder / f"muster-{self._version}-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
            for name in names:
                mode, data = self._files[name]
                entry = zipfile.ZipInfo(name, TIME)
                entry.external_attr = (0o100000 | mode) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                wheel.writestr(entry, data)

    @staticmethod
    def _digest(data):
        return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--version-header", type=pathlib.Path, required=True)
    for option in ("--program", "--plugin", "--document", "--archive", "--module"):
        parser.add_argument(option, type=pathlib.Path, action="append", default=[])
    options = parser.parse_args()
    version = re.search(r'kSoftwareVersion\[\] = "(.*)"', options.version_header.read_text())[1]
    wheel = Wheel(version)

    for module in options.module:
        wheel.add(f"muster/{module.name}", module.read_bytes())
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for program in options.program:
            wheel.add(f"muster/bin/{program.name}", libraries.relocatable(program, "$ORIGIN/../lib", scratch), 0o755)
        for plugin in options.plugin:
            wheel.add(f"muster/lib/{plugin.name}", libraries.relocatable(plugin, "$ORIGIN", scratch))
    carried = libraries.Carried(options.program, options.plugin, options.archive)
    for name, path in carried.files.items():
        wheel.add(f"muster/lib/{name}", pathlib.Path(path).read_bytes())

    wheel.add_info("METADATA", METADATA.format(version=version))
    commands = "".join(f"{program.name} = muster._programs:main\n" for program in sorted(options.program))
    wheel.add_info("entry_points.txt", f"[console_scripts]\n{commands}")
    for document in options.document:
        wheel.add_info(f"licenses/{document.name}", document.read_bytes())
    for name, data in carried.documents().items():
        wheel.add_info(f"licenses/{name}", data)

    files = [*options.program, *options.plugin, *carried.files.values()]
    major, minor = max(required_glibc(path) for path in files)
    wheel.write(options.out, f"py3-none-manylinux_{major}_{minor}_{platform.machine()}")


if __name__ == "__main__":
    main()
