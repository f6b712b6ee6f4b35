"""PyTorch DistributedDataParallel that continues from its last checkpoint when torchrun restarts it.

Counterpart of recovery_bench.py's training, run by torchrun: resnet18 on random images of 32 x 32 with one thread per
rank. Rank 0 saves a checkpoint every --checkpoint-every steps, as the documentation of torchrun advises, and appends a
JSON line for each step to --steps-file: the step, the time at its end, and the process.
"""

import argparse
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two convolutions and their shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.convolutions(x) + self.shortcut(x))


def resnet18():
    """Has as many parameters as the model of recovery_bench.py: 11,175,370."""
    layers = [nn.Conv2d(1, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps-file", required=True)
    parser.add_argument("--state-file", required=True)
    parser.add_argument("--checkpoint-every", type=int, default=20)
    parser.add_argument("--batch", type=int, default=128, help="global batch size")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, share = dist.get_rank(), args.batch // dist.get_world_size()
    model = nn.parallel.DistributedDataParallel(resnet18())
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    step = 0
    if os.path.exists(args.state_file):
        state = torch.load(args.state_file, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    images, labels = torch.randn(share, 1, 32, 32), torch.randint(10, (share,))
    while True:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        step += 1
        if rank != 0:
            continue
        with pathlib.Path(args.steps_file).open("a", encoding="utf-8") as log:
            log.write(json.dumps({"step": step, "time": time.time(), "pid": os.getpid()}) + "\n")
        if step % args.checkpoint_every == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
                       args.state_file + ".new")
            os.replace(args.state_file + ".new", args.state_file)


if __name__ == "__main__":
    main()
