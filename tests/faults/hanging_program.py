"""A PyTorch program of several ranks that hangs, or is only slow. Usage: hanging_program.py KIND RANK SECONDS

All ranks all-reduce a few times; then RANK does what KIND names while the others wait for it in the next all-reduce. The
slow kinds take about SECONDS and then continue to the end.
"""

import os
import signal
import sys
import threading
import time

kind, suspect, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])


def compute(duration):
    end = time.monotonic() + duration
    while time.monotonic() < end:
        pass


if kind == "slow_import":
    compute(seconds)

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Stuck(Dataset):
    """A dataset whose fourth sample never arrives."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 3:
            time.sleep(100_000)
        return torch.ones(4)


def checkpoint():
    end = time.monotonic() + seconds
    with open("checkpoint", "wb") as file:
        while time.monotonic() < end:
            file.write(bytes(1 << 20))
            time.sleep(0.5)


def evaluation():
    for batch in range(int(seconds)):
        print(f"evaluated batch {batch}", flush=True)
        time.sleep(1)


def deadlock():
    first, second = threading.Lock(), threading.Lock()

    def other():
        with second:
            time.sleep(0.2)
            first.acquire()

    first.acquire()
    threading.Thread(target=other, daemon=True).start()
    time.sleep(0.1)
    second.acquire()


def loop():
    while True:
        pass


ACTIONS = {
    "barrier": dist.barrier,
    "broadcast": lambda: dist.broadcast(torch.ones(4), src=0),
    "deadlock": deadlock,
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "sleep": lambda: time.sleep(100_000),
    "loader": lambda: list(DataLoader(Stuck(), num_workers=2)),
    "loop": loop,
    "slow_checkpoint": checkpoint,
    "slow_evaluation": evaluation,
    "slow_import": lambda: None,
}

dist.init_process_group("gloo")
rank = dist.get_rank()
tensor = torch.ones(100_000)
for _ in range(3):
    dist.all_reduce(tensor)
# The test compares the time of detection with the newest of these.
print(f"hang {time.time()}", flush=True)
if rank == suspect:
    ACTIONS[kind]()
dist.all_reduce(tensor)
print("done", flush=True)
