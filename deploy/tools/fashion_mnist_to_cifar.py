#!/usr/bin/env python3
"""Converts Fashion-MNIST to the binary layout of CIFAR-10, for programs and experiments that read CIFAR-10.

    fashion_mnist_to_cifar.py SOURCE TARGET

SOURCE contains Fashion-MNIST's four files, compressed (.gz) or not. TARGET receives data_batch_1.bin to
data_batch_5.bin with 12,000 images each, test_batch.bin with 10,000, and batches.meta.txt with the names of
Fashion-MNIST's ten classes. Each image is padded with black from 28x28 to 32x32 and repeated in all three channels.
"""

import argparse
import gzip
import pathlib
import struct
import sys

CLASSES = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
SIDE = 28
PADDING = 2
TRAINING_FILES = 5


def read_idx(folder, name, dimensions):
    """Returns the number of elements and the data of an IDX file; dimensions after the first are image sides."""
    path = folder / name
    if path.exists():
        data = path.read_bytes()
    else:
        path = folder / (name + ".gz")
        data = gzip.decompress(path.read_bytes())
    header = 4 + 4 * dimensions
    if len(data) < header:
        sys.exit(f"{path}: the header is missing")
    magic, count, *sides = struct.unpack(f">{1 + dimensions}I", data[:header])
    if magic != 0x800 + dimensions or any(side != SIDE for side in sides):
        sys.exit(f"{path}: not a Fashion-MNIST header")
    if len(data) != header + count * SIDE ** len(sides):
        sys.exit(f"{path}: {len(data)} bytes do not hold {count} elements")
    return count, memoryview(data)[header:]


def record(label, image):
    """Returns a record of CIFAR-10: the label, then one plane per channel."""
    margin = bytes(PADDING)
    empty = bytes(PADDING * (SIDE + 2 * PADDING))
    rows = [margin + bytes(image[y * SIDE:(y + 1) * SIDE]) + margin for y in range(SIDE)]
    return bytes([label]) + 3 * (empty + b"".join(rows) + empty)


def write(path, images, labels, begin, end):
    size = SIDE * SIDE
    with open(path, "wb") as file:
        for i in range(begin, end):
            file.write(record(labels[i], images[i * size:(i + 1) * size]))


def convert(source, target):
    target.mkdir(parents=True, exist_ok=True)
    for stem, files in [("train", [f"data_batch_{i + 1}.bin" for i in range(TRAINING_FILES)]),
                        ("t10k", ["test_batch.bin"])]:
        count, images = read_idx(source, f"{stem}-images-idx3-ubyte", 3)
        label_count, labels = read_idx(source, f"{stem}-labels-idx1-ubyte", 1)
        if label_count != count or count % len(files) != 0:
            sys.exit(f"{source}: {stem} has {count} images and {label_count} labels")
        share = count // len(files)
        for i, name in enumerate(files):
            write(target / name, images, labels, i * share, (i + 1) * share)
    (target / "batches.meta.txt").write_text("\n".join(CLASSES) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    args = parser.parse_args()
    try:
        convert(args.source, args.target)
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
