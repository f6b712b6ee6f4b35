"""An ordinary distributed PyTorch program for any launcher that sets the usual environment: torchrun or Muster.

Trains a small network on a subset of Fashion-MNIST with DistributedDataParallel over Gloo and a DistributedSampler,
evaluates, and saves the weights on rank 0. It contains no launcher-specific code. Rank 0 prints one JSON line.
"""

import argparse
import gzip
import json
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def read_idx(path, header_bytes):
    with gzip.open(path) as f:
        return np.frombuffer(f.read(), np.uint8, offset=header_bytes)


def load(folder, part, count):
    images = read_idx(os.path.join(folder, f"{part}-images-idx3-ubyte.gz"), 16).reshape(-1, 1, 28, 28)[:count]
    labels = read_idx(os.path.join(folder, f"{part}-labels-idx1-ubyte.gz"), 8)[:count]
    return TensorDataset((torch.from_numpy(images.copy()).float() / 255 - 0.2860) / 0.3530,
                         torch.from_numpy(labels.astype(np.int64)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=6000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64, help="batch size per process")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 7 * 7, 10)))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    data = load(args.data, "train", args.samples)
    sampler = DistributedSampler(data, seed=1)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, args.batch, sampler=sampler):
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()

    test = load(args.data, "t10k", 1000)
    with torch.no_grad():
        right = (model(test.tensors[0]).argmax(1) == test.tensors[1]).sum()
    losses = [torch.zeros(()) for _ in range(dist.get_world_size())]
    dist.all_gather(losses, loss.detach())
    if rank == 0:
        with tempfile.TemporaryDirectory() as directory:
            torch.save(model.module.state_dict(), os.path.join(directory, "model.pt"))
        print(json.dumps({"torch": torch.__version__, "ranks": dist.get_world_size(),
                          "losses": [value.item() for value in losses], "accuracy": right.item() / 1000}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
