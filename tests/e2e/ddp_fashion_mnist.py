"""DistributedDataParallel on Fashion-MNIST over Gloo, written as usual for torchrun.

Takes rank and world size from the environment variables that every launcher sets (env://). Each rank prints its loss
of each step; rank 0 writes a checkpoint at the end.
"""

import argparse
import gzip
import os
import struct

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def read_idx(path):
    with gzip.open(path) as f:
        magic, = struct.unpack(">I", f.read(4))
        shape = struct.unpack(f">{magic & 255}I", f.read(4 * (magic & 255)))
        return torch.frombuffer(bytearray(f.read()), dtype=torch.uint8).reshape(shape)


def load(folder, images):
    x = read_idx(os.path.join(folder, "train-images-idx3-ubyte.gz"))[:images].unsqueeze(1).float() / 255
    y = read_idx(os.path.join(folder, "train-labels-idx1-ubyte.gz"))[:images].long()
    return TensorDataset((x - 0.286) / 0.353, y)


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 7 * 7, 10))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=32, help="per rank")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--checkpoint", help="file that rank 0 writes")
    args = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo")  # env://
    rank, world = dist.get_rank(), dist.get_world_size()

    dataset = load(args.data, args.images)
    sampler = DistributedSampler(dataset, seed=7)
    loader = DataLoader(dataset, batch_size=args.batch, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            step += 1
            print(f"step {step} rank {rank} loss {loss.item():.17g}")

    dist.barrier()
    losses = [torch.zeros(()) for _ in range(world)]
    dist.all_gather(losses, loss.detach())
    if rank == 0:
        print("last losses", *(f"{value.item():.17g}" for value in losses))
        if args.checkpoint:
            torch.save(model.module.state_dict(), args.checkpoint)
    dist.barrier()


if __name__ == "__main__":
    main()
