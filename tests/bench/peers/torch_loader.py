"""Images per second that torchvision prepares for training: counterpart of loader_bench.

    torch_loader.py FOLDER [--form pil|tensor] [--size 224] [--batch 32] [--workers 0] [--epochs 3]

Form pil transforms PIL images; tensor decodes into tensors and transforms those. Prints one line of JSON for the epochs
after the first: images_per_second of wall time, and images_per_cpu_second of this process and its workers. Without
workers everything runs in one thread.
"""

import argparse
import json
import multiprocessing
import os
import time

import torch
from torchvision import datasets, io, transforms

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def image_folder(folder, form, size):
    # Versions differ in their default for tensors; for PIL images antialiasing is always on.
    crop = transforms.RandomResizedCrop(size, antialias=True) if form == "tensor" else transforms.RandomResizedCrop(size)
    to_float = transforms.ConvertImageDtype(torch.float32) if form == "tensor" else transforms.ToTensor()
    pipeline = transforms.Compose([crop, transforms.RandomHorizontalFlip(), to_float,
                                   transforms.Normalize(MEAN, DEVIATION)])
    if form == "pil":
        return datasets.ImageFolder(folder, pipeline)
    return datasets.ImageFolder(folder, pipeline, loader=lambda path: io.read_image(path, io.ImageReadMode.RGB))


def cpu_seconds():
    """CPU time of this process and its workers so far."""
    ticks = 0
    for worker in multiprocessing.active_children():
        with open(f"/proc/{worker.pid}/stat") as stat:
            user, system = stat.read().rsplit(")", 1)[1].split()[11:13]
            ticks += int(user) + int(system)
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--form", choices=["pil", "tensor"], default="pil")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dataset = image_folder(f"{args.folder}/train", args.form, args.size)
    loader = torch.utils.data.DataLoader(dataset, batch_size=args.batch, shuffle=True, num_workers=args.workers,
                                         persistent_workers=args.workers > 0)
    for _ in loader:  # reads the files into memory and starts the workers
        pass
    start, cpu_start = time.monotonic(), cpu_seconds()
    images = sum(len(batch) for _ in range(args.epochs) for batch, _ in loader)
    print(json.dumps({"images_per_second": images / (time.monotonic() - start),
                      "images_per_cpu_second": images / (cpu_seconds() - cpu_start)}))


if __name__ == "__main__":
    main()
