"""Rendezvous and barriers through PyTorch's TCPStore: counterpart of rendezvous_bench.

A server and --ranks clients, each with its own connection, distributed as threads over --processes processes. A rank's
rendezvous: connect, take a number by add(), publish a 64-byte address, fetch the 128-byte id that rank 0 publishes, and
pass a barrier, which completes when all ranks have joined. Barriers work as in torch.distributed.elastic: add() to a
counter; the last rank sets the key on which all wait.

Prints one JSON line: seconds until the last rank completed its rendezvous, and of all ranks' barriers.
"""

import argparse
import datetime
import json
import multiprocessing
import threading
import time

import torch
from torch.distributed import TCPStore

TIMEOUT = datetime.timedelta(seconds=300)
ADDRESS = b"a" * 64
UNIQUE_ID = b"u" * 128


def pass_barrier(store, name, ranks):
    if store.add(f"{name}/arrived", 1) == ranks:
        store.set(f"{name}/open", b"1")
    store.wait([f"{name}/open"])


def run_rank(port, args, ends, seconds):
    store = TCPStore("127.0.0.1", port, None, False, timeout=TIMEOUT)
    number = store.add("ranks", 1) - 1
    store.set(f"address/{number}", ADDRESS)
    if number == 0:
        store.set("unique-id", UNIQUE_ID)
    assert bytes(store.get("unique-id")) == UNIQUE_ID
    pass_barrier(store, "rendezvous", args.ranks)
    ends.append(time.monotonic())
    for i in range(args.barriers):
        start = time.monotonic()
        pass_barrier(store, f"barrier/{i}", args.ranks)
        seconds.append(time.monotonic() - start)


def run_process(count, port, args, start, results):
    ends, seconds = [], []  # appended to by all threads
    threads = [threading.Thread(target=run_rank, args=(port, args, ends, seconds)) for _ in range(count)]
    start.wait()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((ends, seconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--barriers", type=int, default=10)
    args = parser.parse_args()

    # One-time costs are excluded from the measurement: PyTorch is loaded and processes are forked
    # beforehand.
    server = TCPStore("127.0.0.1", 0, None, True, timeout=TIMEOUT, wait_for_workers=False)
    start = multiprocessing.Barrier(args.processes + 1)
    results = multiprocessing.Queue()
    shares = [args.ranks // args.processes + (i < args.ranks % args.processes) for i in range(args.processes)]
    processes = [multiprocessing.Process(target=run_process, args=(share, server.port, args, start, results))
                 for share in shares]
    for process in processes:
        process.start()
    start.wait()
    begin = time.monotonic()
    ends, seconds = [], []
    for _ in processes:
        of_process = results.get()
        ends += of_process[0]
        seconds += of_process[1]
    for process in processes:
        process.join()
    assert len(ends) == args.ranks, "a rank failed"
    seconds.sort()
    print(json.dumps({"torch": torch.__version__, "ranks": args.ranks,
                      "rendezvous_seconds": max(ends) - begin,
                      "barrier_p50_seconds": seconds[len(seconds) // 2],
                      "barrier_p99_seconds": seconds[len(seconds) * 99 // 100],
                      "barrier_max_seconds": seconds[-1]}))


if __name__ == "__main__":
    main()
