#!/usr/bin/env python3
"""Makes a folder of JPEG pictures, train/CLASS/*.jpg and val/CLASS/*.jpg, for tests and benchmarks.

    make_jpeg_folder.py FOLDER [--train=1000] [--val=100] [--classes=10] [--size=500x375] [--quality=90]
                        [--source=random | --source=FASHION_MNIST_FOLDER]

--train and --val are numbers of pictures over all classes. Random pictures have the spectrum of photographs (as much
energy in each octave) and a tint of their class's own, so that a file is about as long, and as slow to decode, as a
photograph of its size; classes can be learnt from them. Pictures of Fashion-MNIST, enlarged, come in folders named by
their class. The same arguments give the same pictures.
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
    """Noise of mean 0 whose octaves, from the whole picture down to the pixel, have equal energy."""
    plane = np.zeros((height, width), np.float32)
    cell = max(width, height)
    while cell >= 1:
        shape = (max(2, height // cell), max(2, width // cell))
        noise = Image.fromarray(rng.standard_normal(shape, np.float32))
        # Finer detail fades a little, as lenses blur it.
        plane += roughness(cell) * np.asarray(noise.resize((width, height), Image.BICUBIC))
        cell //= 2
    return plane


def random_picture(rng, label, classes, width, height):
    luma = 128 + random_plane(rng, width, height, lambda cell: 22 if cell > 2 else 8)
    hue = 2 * np.pi * label / classes
    planes = [luma]
    for tint in (np.cos(hue), np.sin(hue)):
        planes.append(128 + 30 * tint + random_plane(rng, width, height, lambda cell: 4 if cell > 4 else 1))
    pixels = np.clip(np.stack(planes, axis=-1), 0, 255).astype(np.uint8)
    return Image.fromarray(pixels, "YCbCr")


class RandomPictures:
    def __init__(self, classes, size):
        self.names = [f"class-{i:03d}" for i in range(classes)]
        self.size = size

    def picture(self, split, i):
        label = i % len(self.names)
        rng = np.random.default_rng([split, i])
        return label, random_picture(rng, label, len(self.names), *self.size)


class FashionMnist:
    def __init__(self, folder, size):
        self.names = [name.replace("/", "-").replace(" ", "-") for name in CLASSES]
        self.size = size
        self.splits = []
        for stem in ("train", "t10k"):
            count, pictures = read_idx(folder, f"{stem}-images-idx3-ubyte", 3)
            labels = read_idx(folder, f"{stem}-labels-idx1-ubyte", 1)[1]
            self.splits.append((np.asarray(pictures).reshape(count, SIDE, SIDE), labels))

    def picture(self, split, i):
        pictures, labels = self.splits[split]
        i %= len(labels)
        return labels[i], Image.fromarray(pictures[i]).resize(self.size, Image.BICUBIC).convert("RGB")


def write(folder, source, split, count, quality):
    for name in source.names:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        label, picture = source.picture(split, i)
        picture.save(folder / source.names[label] / f"{i:06d}.jpg", quality=quality)
    for name in source.names:
        if not any((folder / name).iterdir()):
            (folder / name).rmdir()  # fewer pictures than classes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--train", type=int, default=1000)
    parser.add_argument("--val", type=int, default=100)
    parser.add_argument("--classes", type=int, default=10, help="of random pictures")
    parser.add_argument("--size", default="500x375", help="WIDTHxHEIGHT")
    parser.add_argument("--quality", type=int, default=90)
    parser.add_argument("--source", default="random")
    args = parser.parse_args()
    size = tuple(int(side) for side in args.size.split("x"))
    source = (RandomPictures(args.classes, size) if args.source == "random"
              else FashionMnist(pathlib.Path(args.source), size))
    write(args.folder / "train", source, 0, args.train, args.quality)
    write(args.folder / "val", source, 1, args.val, args.quality)


if __name__ == "__main__":
    main()
