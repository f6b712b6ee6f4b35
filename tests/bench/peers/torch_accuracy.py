"""Trains small_cnn on Fashion-MNIST with PyTorch DistributedDataParallel and a recipe of deploy/examples, and reports
the time to a test accuracy: counterpart of accuracy_bench.

    torch_accuracy.py [--epochs 20] [--batch 256] [--learning-rate 0.1] … [--target 0.93] [--device cuda --ranks 1]

The options have the same meaning as in Muster's spec: SGD with Nesterov momentum, linear warm-up and cosine decay,
random crops of padded images and flips, dropout, label smoothing, a moving average of the weights for evaluation.
Images are kept in memory as bytes; a batch is gathered, cropped, flipped and normalized by a few operations on whole
tensors. After each epoch both ranks evaluate half of the test set. A single rank does not use DistributedDataParallel;
on a GPU, images are kept in GPU memory.

The clock starts at the end of the first step, so that imports and compilation do not count, and one median step is
added for the first. Prints one JSON line per epoch and one for the whole run.
"""

import argparse
import gzip
import json
import math
import os
import socket
import statistics
import time
import warnings

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

MEAN, DEVIATION = 0.2860, 0.3530


def read_idx(path, header_bytes):
    with gzip.open(path) as f:
        return np.frombuffer(f.read(), np.uint8, offset=header_bytes)


def load(folder, stem):
    """[n, 28, 28] uint8 and [n] int64."""
    images = read_idx(os.path.join(folder, f"{stem}-images-idx3-ubyte.gz"), 16).reshape(-1, 28, 28)
    labels = read_idx(os.path.join(folder, f"{stem}-labels-idx1-ubyte.gz"), 8)
    return torch.from_numpy(images.copy()), torch.from_numpy(labels.astype(np.int64))


def small_cnn(dropout):
    head = [nn.Dropout(dropout)] if dropout > 0 else []
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), *head, nn.Linear(128, 10))


class Images:
    """Batches from memory, augmented."""

    def __init__(self, images, labels, args):
        self.labels, self.flip, self.padding = labels, args.flip, args.crop_padding
        # Padded once, so that a crop is a window.
        self.images = F.pad(images, [self.padding] * 4)
        self.device = images.device
        self.window = torch.arange(28, device=self.device)

    def batch(self, indices, generator):
        n = len(indices)
        offsets = torch.randint(0, 2 * self.padding + 1, (2, n, 1), generator=generator, device=self.device)
        rows, columns = offsets[0] + self.window, offsets[1] + self.window
        if self.flip:
            mirrored = torch.rand(n, 1, generator=generator, device=self.device) < 0.5
            columns = torch.where(mirrored, columns.flip(1), columns)
        pixels = self.images[indices[:, None, None], rows[:, :, None], columns[:, None, :]]
        return normalised(pixels), self.labels[indices]


def normalised(pixels):
    """Converts [n, 28, 28] uint8 to [n, 1, 28, 28] float32, which with one channel is also channels_last."""
    x = pixels.float().mul_(1 / (255 * DEVIATION)).sub_(MEAN / DEVIATION).unsqueeze(1)
    return x.contiguous(memory_format=torch.channels_last)


def learning_rate(args, step, steps_per_epoch):
    warmup = round(args.warmup_epochs * steps_per_epoch)
    total = round(args.epochs * steps_per_epoch)
    if step < warmup:
        return args.learning_rate * (step + 1) / (warmup + 1)
    return args.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


class Average:
    """An exponential moving average of parameters and running statistics, in a separate model."""

    def __init__(self, model, decay, args):
        self.decay = decay
        self.model = small_cnn(args.dropout).to(args.device, memory_format=torch.channels_last).eval()
        self.model.load_state_dict(model.state_dict())
        self.mine = self._tensors(self.model)
        self.source = self._tensors(model)

    @staticmethod
    def _tensors(model):
        return [t.detach() for t in [*model.parameters(), *model.buffers()] if t.is_floating_point()]

    def update(self, step):
        if self.decay <= 0 or step == 0:
            torch._foreach_copy_(self.mine, self.source)
        else:
            torch._foreach_lerp_(self.mine, self.source, 1 - min(self.decay, (1 + step) / (10 + step)))


@torch.inference_mode()
def evaluate(model, images, labels, rank, args):
    """Accuracy on the whole test set, each of two ranks evaluating half, with rank 0's running statistics."""
    if args.ranks > 1:
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)
    correct = torch.zeros(1, device=args.device)
    for begin in range(rank * args.evaluation_batch, len(labels), args.ranks * args.evaluation_batch):
        end = begin + args.evaluation_batch
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.amp):
            logits = model(normalised(images[begin:end]))
        correct += (logits.argmax(1) == labels[begin:end]).sum()
    if args.ranks > 1:
        dist.all_reduce(correct)
    return correct.item() / len(labels)


def train(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    train_images = Images(*(part.to(args.device) for part in load(args.data, "train")), args)
    test_images, test_labels = (part.to(args.device) for part in load(args.data, "t10k"))
    if args.train_images:
        train_images.labels = train_images.labels[:args.train_images]
    raw = small_cnn(args.dropout).to(args.device, memory_format=torch.channels_last)
    # The argument was renamed in PyTorch 2.15.
    warnings.filterwarnings("ignore", message=".*broadcast_buffers")
    model = raw if args.ranks == 1 else nn.parallel.DistributedDataParallel(
        raw, broadcast_buffers=False, gradient_as_bucket_view=True)
    step_model = torch.compile(model) if args.compile else model
    average = Average(raw, args.ema_decay, args)
    optimizer = torch.optim.SGD(model.parameters(), args.learning_rate, momentum=args.momentum,
                                nesterov=args.nesterov, weight_decay=args.weight_decay, fused=True)
    order = torch.Generator().manual_seed(args.seed)  # the same on all ranks
    augmentation = torch.Generator(args.device).manual_seed(args.seed * 1000 + rank)
    count = len(train_images.labels)
    steps_per_epoch = math.ceil(count / args.batch)
    step, seconds, evaluating, reached = 0, [], 0.0, None
    start = None
    for epoch in range(args.epochs):
        permutation = torch.randperm(count, generator=order)
        for batch in permutation.split(args.batch):
            step_start = time.perf_counter()
            own = batch.tensor_split(args.ranks)[rank].to(args.device)
            x, labels = train_images.batch(own, augmentation)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(args, step, steps_per_epoch)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.amp):
                logits = step_model(x)
            loss = F.cross_entropy(logits.float(), labels, label_smoothing=args.label_smoothing)
            loss.backward()
            optimizer.step()
            average.update(step)
            step += 1
            if start is None and args.device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - step_start)
            start = start or time.perf_counter()
        evaluation_start = time.perf_counter()
        accuracy = evaluate(average.model, test_images, test_labels, rank, args)
        end = time.perf_counter()
        evaluating += end - evaluation_start
        total = end - start + statistics.median(seconds)
        if rank == 0:
            print(json.dumps({"epoch": epoch + 1, "test_accuracy": accuracy, "loss": loss.item(), "seconds": total,
                              "evaluation_seconds": evaluating}), flush=True)
        if reached is None and accuracy >= args.target:
            reached = {"epoch": epoch + 1, "seconds": total, "training_seconds": total - evaluating}
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "test_accuracy": accuracy, "target": args.target,
                          "reached": reached, "epochs": args.epochs, "seconds": total,
                          "training_seconds": total - evaluating,
                          "images_per_second": args.batch / statistics.median(seconds)}), flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: with one rank")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--train-images", type=int, default=0, help="use only the first N images; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=float, default=0.93)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=256, help="global batch size")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--nesterov", action="store_true")
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--warmup-epochs", type=float, default=1)
    parser.add_argument("--crop-padding", type=int, default=0)
    parser.add_argument("--flip", action="store_true")
    parser.add_argument("--dropout", type=float, default=0)
    parser.add_argument("--label-smoothing", type=float, default=0)
    parser.add_argument("--ema-decay", type=float, default=0, help="0: no moving average")
    parser.add_argument("--evaluation-batch", type=int, default=250)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--amp", action="store_true", help="autocast to bfloat16")
    args = parser.parse_args()
    if args.device == "cuda" and args.ranks != 1:
        parser.error("--device=cuda requires --ranks=1")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(train, (args, port), args.ranks)


if __name__ == "__main__":
    main()
