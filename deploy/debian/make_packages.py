"""Makes Debian packages of the programs: make_packages.py --out FOLDER --program FILE… --source FILE… and others

muster-common        the user muster, /etc/muster, the documents (--document) and the licences of the libraries that the
                     programs contain (--archive)
muster               /usr/bin/muster, completion scripts, muster.1 and a page per verb
muster-coordinator   /usr/bin/muster-coordinator, its unit, /etc/muster/coordinator; /usr/share/muster has the files for
                     Prometheus and Grafana
muster-worker        /usr/bin/muster-worker, its unit, /etc/muster/worker; /usr/lib/muster has the programs that the
                     worker starts, and the plug-ins (--plugin)

The other files are in --source: control (the stanzas of the packages), changelog, copyright, PACKAGE.SCRIPT, NAME.conf,
the units from deploy/systemd, and the files of deploy/prometheus and deploy/grafana. The man pages are made of --cli-page. Shared libraries are dependencies, as
dpkg-shlibdeps finds them. The output is reproducible.
"""

import argparse
import collections
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[2]))

from deploy.bundle import libraries  # noqa: E402
from deploy.debian import man_pages  # noqa: E402

MTIME = 315532800  # 1980
HELPERS = ("muster-c10d-store", "muster-mpi", "muster-rank", "muster-shim", "muster-worker")
COMPLETIONS = {"bash": "bash-completion/completions/muster", "zsh": "zsh/vendor-completions/_muster",
               "fish": "fish/vendor_completions.d/muster.fish"}
SCRIPTS = ("postinst", "prerm", "postrm")
MONITORING = ("grafana", "prometheus")  # folders of sources
FIELDS = "Source: muster\nVersion: {version}\nMaintainer: {maintainer}\nPriority: optional\nInstalled-Size: {size}\n"


class Package:
    """The tree of a package."""

    def __init__(self, name, folder):
        self.name = name
        self.root = folder / name
        self.conffiles = []

    def add(self, path, data, mode=0o644):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data if isinstance(data, bytes) else data.encode())
        target.chmod(mode)

    def add_compressed(self, path, data):
        self.add(f"{path}.gz", gzip.compress(data if isinstance(data, bytes) else data.encode(), mtime=0))

    def add_program(self, path, source):
        """A stripped copy without library search paths of the build."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        libraries.run("strip", "--remove-section=.comment", "--remove-section=.note", "-o", target, source)
        libraries.run("patchelf", "--remove-rpath", target)
        target.chmod(0o755 if os.access(source, os.X_OK) and not path.endswith(".so") else 0o644)

    def add_configuration(self, path, data):
        self.add(path, data)
        self.conffiles.append(f"/{path}\n")

    def add_link(self, path, target):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).symlink_to(target)

    def elf_files(self):
        return [path for path in self._files() if path.read_bytes()[:4] == b"\x7fELF"]

    def _files(self):
        return sorted(path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink())

    def build(self, out, control, scripts):
        files = self._files()
        sums = "".join(f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(self.root)}\n"
                       for path in files)
        size = sum(-(-path.stat().st_size // 1024) for path in files)
        self.add("DEBIAN/control", control.replace("{size}", str(size)))
        self.add("DEBIAN/md5sums", sums)
        if self.conffiles:
            self.add("DEBIAN/conffiles", "".join(self.conffiles))
        for name, text in scripts.items():
            self.add(f"DEBIAN/{name}", text, 0o755)
        for path in [self.root, *self.root.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)
            os.utime(path, (MTIME, MTIME), follow_symlinks=False)
        libraries.run("dpkg-deb", "--root-owner-group", "-Zxz", "-z2", "--build", self.root, out)


def shared_library_dependencies(files, folder):
    """Returns the dependencies of ELF files in the form of a control file."""
    # The program needs a source package, and reads the names of its packages.
    (folder / "debian").mkdir(exist_ok=True)
    (folder / "debian/control").write_text("Source: muster\n\nPackage: muster\nArchitecture: any\n")
    here = os.getcwd()
    os.chdir(folder)
    try:
        shown = libraries.run("dpkg-shlibdeps", "-O", "--ignore-missing-info", *files)
    finally:
        os.chdir(here)
    return re.search(r"^shlibs:Depends=(.*)$", shown, re.M)[1]


def build_packages(options, folder):
    version = re.search(r'kSoftwareVersion\[\] = "(.*)"', options.version_header.read_text())[1]
    source = {path.name: path for path in options.source}
    programs = {path.name: path for path in options.program}
    changelog = source["changelog"].read_text()
    if not changelog.startswith(f"muster ({version}) "):
        sys.exit(f"{source['changelog']}: the first entry is not of version {version}")
    maintainer = re.search(r"^ -- (.*?)  ", changelog, re.M)[1]

    common, cli, coordinator, worker = packages = [
        Package(name, folder) for name in ("muster-common", "muster", "muster-coordinator", "muster-worker")]
    common.root.joinpath("etc/muster").mkdir(parents=True)
    for document in options.document:
        if document.name != "LICENSE":  # in /usr/share/common-licenses
            common.add_compressed(f"usr/share/doc/muster-common/{document.name}", document.read_bytes())
    contained = collections.defaultdict(list)
    for path, package in libraries.owners(sorted({os.path.realpath(path) for path in options.archive})).items():
        contained[package].append(os.path.basename(path))
    for name, data in libraries.documents(contained).items():
        if not name.startswith("common-licenses/"):
            common.add_compressed(f"usr/share/doc/muster-common/libraries/{name}", data)

    cli.add_program("usr/bin/muster", programs["muster"])
    for shell, path in COMPLETIONS.items():
        cli.add(f"usr/share/{path}", libraries.run(programs["muster"], "completion", shell))
    coordinator.add_program("usr/bin/muster-coordinator", programs["muster-coordinator"])
    for path in options.source:
        if path.parent.name in MONITORING:
            coordinator.add(f"usr/share/muster/{path.parent.name}/{path.name}", path.read_bytes())
    for name in HELPERS:
        worker.add_program(f"usr/lib/muster/{name}", programs[name])
    for plugin in options.plugin:
        worker.add_program(f"usr/lib/muster/{plugin.name}", plugin)
    worker.add_link("usr/bin/muster-worker", "../lib/muster/muster-worker")
    for package, name in ((coordinator, "coordinator"), (worker, "worker")):
        package.add_configuration(f"etc/muster/{name}", source[f"{name}.conf"].read_bytes())
        unit = source[f"muster-{name}.service"].read_text()
        # Its first line is for those who copy it.
        unit = unit.split("\n", 1)[1].replace("/opt/muster/bin/", "/usr/bin/")
        package.add(f"lib/systemd/system/muster-{name}.service", unit)
    worker.add("usr/share/doc/muster-worker/examples/job-user.conf",
               source["muster-worker-job-user.conf"].read_bytes())
    by_page = {"muster-coordinator.8": coordinator, "muster-worker.8": worker}
    for name, text in man_pages.man_pages(options.cli_page.read_text(), version).items():
        by_page.get(name, cli).add_compressed(f"usr/share/man/man{name[-1]}/{name}", text)

    machine = libraries.run("dpkg", "--print-architecture").strip()
    stanzas = {re.search(r"^Package: (.*)$", text, re.M)[1]: text.strip() + "\n"
               for text in source["control"].read_text().split("\n\n") if text.strip()}
    for package in packages:
        package.add(f"usr/share/doc/{package.name}/copyright", source["copyright"].read_bytes())
        package.add_compressed(f"usr/share/doc/{package.name}/changelog", changelog)
        control = stanzas[package.name]
        architecture = "all"
        if "Architecture: any" in control:
            architecture = machine
            dependencies = shared_library_dependencies(package.elf_files(), folder)
            control = control.replace("Architecture: any", f"Architecture: {machine}")
            control = control.replace("${shlibs}", dependencies)
        head, rest = control.replace("${version}", version).split("\n", 1)
        fields = FIELDS.format(version=version, maintainer=maintainer, size="{size}")
        scripts = {name: source[f"{package.name}.{name}"].read_text() for name in SCRIPTS
                   if f"{package.name}.{name}" in source}
        package.build(options.out / f"{package.name}_{version}_{architecture}.deb", f"{head}\n{fields}{rest}", scripts)


def main():
    os.umask(0o022)
    parser = argparse.ArgumentParser()
    for option in ("--out", "--version-header", "--cli-page"):
        parser.add_argument(option, type=pathlib.Path, required=True)
    for option in ("--program", "--plugin", "--document", "--archive", "--source"):
        parser.add_argument(option, type=pathlib.Path, action="append", default=[])
    options = parser.parse_args()
    options.out = options.out.absolute()
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        build_packages(options, folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
