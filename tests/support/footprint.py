"""Resource usage of a cluster: processes, open files, listening ports, shared memory, files."""

import collections
import contextlib
import hashlib
import os
import pathlib
import subprocess


def state_and_parent(pid):
    """State letter and pid of the parent; (None, None) if the process is gone."""
    try:
        state, parent = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:2]
    except OSError:
        return None, None
    return state, int(parent)


def children(pid):
    """{pid: state letter} of the direct children, zombies included."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        state, parent = state_and_parent(entry.name)
        if parent == pid:
            found[int(entry.name)] = state
    return found


def open_files(pid):
    """Number of file descriptors of a process by kind: {'socket': 12, '/path/of/a/file': 1, …}."""
    kinds = collections.Counter()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            kinds[os.readlink(entry).split(":[")[0]] += 1
    return dict(kinds)


def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def listening_ports(pids):
    """Addresses on which the processes listen."""
    found = set()
    for line in subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout.splitlines():
        if any(f"pid={pid}," in line for pid in pids):
            found.add(line.split()[3])
    return found


def shared_memory(data_dir):
    """What the ranks of a worker have left in its --memory-dir."""
    name = "muster-" + hashlib.sha256(str(data_dir.resolve()).encode()).hexdigest()[:16]
    return files_below(pathlib.Path("/dev/shm") / name)


def files_below(directory, without=()):
    """Relative paths of everything below a directory, except below folders with one of the names in `without`."""
    root = pathlib.Path(directory)
    return {str(path.relative_to(root)) for path in root.rglob("*")
            if not set(path.relative_to(root).parts) & set(without)}


def footprint(cluster):
    """All resources in a comparable form; running ranks are included in the processes."""
    daemons = {"coordinator": cluster.coordinator, **cluster.workers}
    pids = {name: daemon.pid for name, daemon in daemons.items()}
    return {
        "processes": sorted(command for _, command in cluster.processes()),
        "children": {name: children(pid) for name, pid in pids.items()},
        "open files": {name: open_files(pid) for name, pid in pids.items()},
        "listening": listening_ports(pids.values()),
        "shared memory": {name: shared_memory(cluster.site(name).data_dir) for name in cluster.workers},
    }
