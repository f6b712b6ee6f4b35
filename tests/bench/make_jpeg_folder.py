#!/usr/bin/env python3
"""Creates a folder of JPEG images, train/CLASS/*.jpg and val/CLASS/*.jpg, for tests and benchmarks.

    make_jpeg_folder.py FOLDER [--train=1000] [--val=100] [--classes=10] [--size=500x375] [--quality=90]
                        [--source=random | --source=FASHION_MNIST_FOLDER]

--train and --val are total numbers of images over all classes. Random images have the spectrum of photographs (equal
energy in each octave) and a tint per class, so that a file is about as large, and as slow to decode, as a photograph of
its size, and classes can be learned from them. Images of Fashion-MNIST are enlarged and stored in folders named by
their class. The same arguments produce the same images.
"""

import argparse
import pathlib
import sys

import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from deploy.tools.fashion_mnist_to_cifar import CLASSES, SIDE, read_idx  # noqa: E402


def random_plane(rng, width, height, roughness):
    """Noise of mean 0 whose octaves, from the whole image down to the pixel, have equal energy."""
    plane = np.zeros((height, width), np.float32)
    cell = max(width, height)
    while cell >= 1:
        shape = (max(2, height // cell), max(2, width // cell))
        noise = Image.fromarray(rng.standard_normal(shape, np.float32))
        # Fine detail is slightly attenuated, as by a lens.
        plane += roughness(cell) * np.asarray(noise.resize((width, height), Image.BICUBIC))
        cell //= 2
    return plane


def random_image(rng, label, classes, width, height):
    luma = 128 + random_plane(rng, width, height, lambda cell: 22 if cell > 2 else 8)
    hue = 2 * np.pi * label / classes
    planes = [luma]
    for tint in (np.cos(hue), np.sin(hue)):
        planes.append(128 + 30 * tint + random_plane(rng, width, height, lambda cell: 4 if cell > 4 else 1))
    pixels = np.clip(np.stack(planes, axis=-1), 0, 255).astype(np.uint8)
    return Image.fromarray(pixels, "YCbCr")


class RandomImages:
    def __init__(self, classes, size):
        self.names = [f"class-{i:03d}" for i in range(classes)]
        self.size = size

    def image(self, split, i):
        label = i % len(self.names)
        rng = np.random.default_rng([split, i])
        return label, random_image(rng, label, len(self.names), *self.size)


class FashionMnist:
    def __init__(self, folder, size):
        self.names = [name.replace("/", "-").replace(" ", "-") for name in CLASSES]
        self.size = size
        self.splits = []
        for stem in ("train", "t10k"):
            count, images = read_idx(folder, f"{stem}-images-idx3-ubyte", 3)
            labels = read_idx(folder, f"{stem}-labels-idx1-ubyte", 1)[1]
            self.splits.append((np.asarray(images).reshape(count, SIDE, SIDE), labels))

    def image(self, split, i):
        images, labels = self.splits[split]
        i %= len(labels)
        return labels[i], Image.fromarray(images[i]).resize(self.size, Image.BICUBIC).convert("RGB")


def write(folder, source, split, count, quality):
    for name in source.names:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        label, image = source.image(split, i)
        image.save(folder / source.names[label] / f"{i:06d}.jpg", quality=quality)
    for name in source.names:
        if not any((folder / name).iterdir()):
            (folder / name).rmdir()  # fewer images than classes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--train", type=int, default=1000)
    parser.add_argument("--val", type=int, default=100)
    parser.add_argument("--classes", type=int, default=10, help="number of classes of random images")
    parser.add_argument("--size", default="500x375", help="WIDTHxHEIGHT")
    parser.add_argument("--quality", type=int, default=90)
    parser.add_argument("--source", default="random")
    args = parser.parse_args()
    size = tuple(int(side) for side in args.size.split("x"))
    source = (RandomImages(args.classes, size) if args.source == "random"
              else FashionMnist(pathlib.Path(args.source), size))
    write(args.folder / "train", source, 0, args.train, args.quality)
    write(args.folder / "val", source, 1, args.val, args.quality)


if __name__ == "__main__":
    main()
