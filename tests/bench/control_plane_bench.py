#!/usr/bin/env python3
"""Rendezvous and barriers of thousands of ranks: Muster against PyTorch's TCPStore, in one run.

    bazel build //tests/bench:rendezvous_bench //coordinator:muster-coordinator
    tests/bench/control_plane_bench.py [--rounds 5] [--nodes 250] [--ranks-per-node 8] [--python PATH]…

Each round runs rendezvous_bench and peers/tcpstore.py once, in turn, so that other load on the machine affects both;
the figures are medians over the rounds. All ranks run on this machine. --python names an interpreter with PyTorch and
may be repeated for several versions; the default is those of .venv and of the system that have PyTorch. Ratios are
given against each, and against the fastest.

PyTorch 2 looks up the host name of each client, which takes minutes if no name server responds. To exclude this from
the measurement, it runs, where the system allows it, with a separate resolv.conf without a working name server.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.interpreters import with_torch  # noqa: E402
from tests.support.daemon import binary  # noqa: E402

FIGURES = ["rendezvous_s", "barrier_p50_ms", "barrier_p99_ms"]


def last_json(argv):
    out = subprocess.run(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    return json.loads(out[out.index("{"):])


def muster(args):
    median = last_json([binary("tests/bench/rendezvous_bench"), f"--nodes={args.nodes}", "--rounds=1", "--json",
                        f"--ranks-per-node={args.ranks_per_node}", f"--barriers={args.barriers}",
                        "--idle-seconds=0.1"])["median"]
    return {"rendezvous_s": median["total_ms"] / 1e3, "barrier_p50_ms": median["barrier_p50_ms"],
            "barrier_p99_ms": median["barrier_p99_ms"]}


def tcpstore(args, prefix, python):
    out = last_json([*prefix, python, str(ROOT / "tests/bench/peers/tcpstore.py"),
                     f"--ranks={args.nodes * args.ranks_per_node}", f"--barriers={args.peer_barriers}"])
    return {"rendezvous_s": out["rendezvous_seconds"], "barrier_p50_ms": out["barrier_p50_seconds"] * 1e3,
            "barrier_p99_ms": out["barrier_p99_seconds"] * 1e3}


def without_name_server(directory):
    """Command prefix that makes a program resolve names from /etc/hosts only; empty if that is not permitted."""
    resolv = pathlib.Path(directory) / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.1\n")
    prefix = ["unshare", "--map-root-user", "--mount", "sh", "-c",
              'mount --bind "$0" /etc/resolv.conf && exec "$@"', str(resolv)]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
        return prefix
    print("cannot create a mount namespace: results include PyTorch's name lookups", file=sys.stderr)
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=250)
    parser.add_argument("--ranks-per-node", type=int, default=8)
    parser.add_argument("--barriers", type=int, default=100, help="barriers of Muster per round")
    parser.add_argument("--peer-barriers", type=int, default=10)
    parser.add_argument("--python", action="append", default=[])
    args = parser.parse_args()
    peers = {f"TCPStore, torch {version}": python for python, version in with_torch(args.python).items()}

    results = {}
    with tempfile.TemporaryDirectory() as directory:
        prefix = without_name_server(directory)
        for _ in range(args.rounds):
            results.setdefault("Muster", []).append(muster(args))
            for name, python in peers.items():
                results.setdefault(name, []).append(tcpstore(args, prefix, python))

    medians = {name: {figure: statistics.median(r[figure] for r in rounds) for figure in FIGURES}
               for name, rounds in results.items()}
    print(f"{args.nodes * args.ranks_per_node} ranks on {args.nodes} nodes, medians of {args.rounds} rounds; "
          "rendezvous is from start until every rank has joined and received the unique id")
    print(f"{'':34}" + "".join(f"{figure:>18}{'it/muster':>11}" for figure in FIGURES))
    for name, median in medians.items():
        print(f"{name:34}" + "".join(f"{median[f]:18.3f}{median[f] / medians['Muster'][f]:10.1f}x" for f in FIGURES))
    for figure in FIGURES[:2]:
        best = min(median[figure] for name, median in medians.items() if name != "Muster")
        print(f"{figure}: the fastest TCPStore takes {best / medians['Muster'][figure]:.1f} times as long as Muster")


if __name__ == "__main__":
    main()
