"""PyTorch's DistributedDataParallel over Gloo on the job that Muster's trainer runs: the peer of train_bench.py.

Each rank is a process with a fixed number of threads; data is already in memory, so the loop costs PyTorch only
indexing and normalising. Prints one JSON line: images/s over all ranks (global batch over the median step).
"""

import argparse
import gzip
import json
import os
import socket
import statistics
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F


def read_idx(path, header_bytes):
    with gzip.open(path) as f:
        return np.frombuffer(f.read(), np.uint8, offset=header_bytes)


def load_fashion_mnist(folder):
    images = read_idx(os.path.join(folder, "train-images-idx3-ubyte.gz"), 16).reshape(-1, 1, 28, 28)
    labels = read_idx(os.path.join(folder, "train-labels-idx1-ubyte.gz"), 8)
    return torch.from_numpy(images.copy()), torch.from_numpy(labels.astype(np.int64))


def small_cnn():
    """The spec's small_cnn: 421,834 parameters at 28x28x1."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))


def train(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    model = small_cnn()
    assert sum(p.numel() for p in model.parameters()) == 421834
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    model = nn.parallel.DistributedDataParallel(model)
    step_model = torch.compile(model) if args.compile else model
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=5e-4)
    images, labels = load_fashion_mnist(args.data)
    share = args.batch // args.ranks
    seconds = []
    for step in range(args.warmup + args.steps):
        start = time.perf_counter()
        first = (step * args.batch + rank * share) % (len(images) - share)
        x = images[first:first + share].float().div_(255).sub_(0.2860).div_(0.3530)
        if args.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(step_model(x), labels[first:first + share])
        loss.backward()
        optimizer.step()
        if step >= args.warmup:
            seconds.append(time.perf_counter() - start)
    if rank == 0:
        median = statistics.median(seconds)
        print(json.dumps({"torch": torch.__version__, "images_per_second": args.batch / median,
                          "median_step_seconds": median, "final_loss": loss.item()}), flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=128, help="global")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(train, (args, port), args.ranks)


if __name__ == "__main__":
    main()
