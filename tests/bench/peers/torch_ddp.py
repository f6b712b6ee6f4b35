"""PyTorch DistributedDataParallel over Gloo on the jobs that Muster's trainer runs: counterpart of train_bench.

Each rank is a process with a fixed number of threads. Images are normalized and resized before the clock starts, so
that only training is measured. Prints one JSON line: images/s over all ranks (global batch divided by the median step)
and the largest resident memory of a rank.
"""

import argparse
import gzip
import json
import os
import resource
import socket
import statistics
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

POOL_BATCHES = 8  # prepared batches per rank, used in turn


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


def make_model(name):
    """A model for images with one channel and ten classes."""
    if name == "small_cnn":
        return small_cnn()
    import torchvision
    model = getattr(torchvision.models, name)(num_classes=10)
    if name.startswith("resnet"):
        model.conv1 = nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    else:
        model.features[0][0] = nn.Conv2d(1, 32, 3, 2, 1, bias=False)
    return model


def prepare(args, rank):
    """[POOL_BATCHES, share, 1, image, image] float32 and labels."""
    images, labels = load_fashion_mnist(args.data)
    share = args.batch // args.ranks
    first = rank * POOL_BATCHES * share
    count = POOL_BATCHES * share
    x = images[first:first + count].float().div_(255).sub_(0.2860).div_(0.3530)
    if args.image != 28:
        x = F.interpolate(x, size=(args.image, args.image), mode="bilinear", align_corners=False)
    batches = list(x.split(share))
    if args.channels_last:
        batches = [b.contiguous(memory_format=torch.channels_last) for b in batches]
    return batches, list(labels[first:first + count].split(share))


def train(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    model = make_model(args.model)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    model = nn.parallel.DistributedDataParallel(model)
    step_model = torch.compile(model) if args.compile else model
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=5e-4)
    batches, labels = prepare(args, rank)
    seconds = []
    for step in range(args.warmup + args.steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.amp):
            logits = step_model(batches[step % POOL_BATCHES])
        loss = F.cross_entropy(logits.float(), labels[step % POOL_BATCHES])
        loss.backward()
        optimizer.step()
        if step >= args.warmup:
            seconds.append(time.perf_counter() - start)
    if rank == 0:
        median = statistics.median(seconds)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"torch": torch.__version__, "images_per_second": args.batch / median,
                          "median_step_seconds": median, "peak_memory_bytes": peak,
                          "final_loss": loss.item()}), flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="small_cnn", help="small_cnn or a model of torchvision")
    parser.add_argument("--image", type=int, default=28, help="height and width")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=128, help="global batch size")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--amp", action="store_true", help="autocast to bfloat16")
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(train, (args, port), args.ranks)


if __name__ == "__main__":
    main()
