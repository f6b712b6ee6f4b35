"""Transforms of an image folder match torchvision."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import numpy
import torch
from PIL import Image
from torchvision import datasets, transforms
from torchvision.transforms import functional

from tests.support.daemon import binary

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZES = [(80, 61), (61, 80), (97, 97), (33, 240), (64, 64), (51, 40), (150, 101)]


def smooth_image(rng, size):
    """Noise of several octaves, none so fine that a JPEG's own rounding shows."""
    planes = numpy.full((size[1], size[0], 3), 128.0)
    for cells, weight in ((3, 40), (9, 20), (20, 8)):
        for channel in range(3):
            noise = Image.fromarray(rng.standard_normal((cells, cells)).astype(numpy.float32))
            planes[:, :, channel] += weight * numpy.asarray(noise.resize(size, Image.BICUBIC))
    return Image.fromarray(planes.clip(0, 255).astype(numpy.uint8))


class TransformTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="muster-images.")
        cls.root = pathlib.Path(cls.folder.name)
        rng = numpy.random.default_rng(3)
        for split in ("train", "val"):
            for i, size in enumerate(SIZES):
                directory = cls.root / split / f"class-{i % 3}"
                directory.mkdir(parents=True, exist_ok=True)
                image = smooth_image(rng, size)
                # Grey images and halved colour resolution are in every collection.
                image = image.convert("L") if i == 4 else image
                image.save(directory / f"{i}.jpg", quality=92, subsampling=0 if i % 2 else 2)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def load(self, size, *flags):
        """[(what the driver says of a row, the row as a CHW tensor)]."""
        output = self.root / "output"
        result = subprocess.run([binary("tests/images/transform_driver"), f"--data={self.root}", f"--output={output}",
                                 f"--size={size}", *flags], check=True, stdout=subprocess.PIPE, text=True)
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        rows = numpy.fromfile(output, numpy.float32).reshape(len(lines), size, size, 3)
        return list(zip(lines, torch.from_numpy(rows).permute(0, 3, 1, 2)))

    def levels(self, ours, theirs):
        """The difference in levels of brightness, of 255."""
        return (ours - theirs).abs() * torch.tensor(DEVIATION).reshape(3, 1, 1) * 255

    def test_evaluation(self):
        for size, center_crop, resized in ((28, 0.875, 32), (56, 1, 56), (45, 0.9, 50)):
            pipeline = transforms.Compose([transforms.Resize(resized), transforms.CenterCrop(size),
                                           transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)])
            dataset = datasets.ImageFolder(self.root / "val", pipeline)
            rows = self.load(size, f"--center-crop={center_crop}", "--detail=1000")
            self.assertEqual([line["sample"] for line, _ in rows], list(range(len(SIZES))))
            for line, ours in rows:
                theirs, label = dataset[line["sample"]]
                self.assertEqual(line["label"], label)
                self.assertLess(self.levels(ours, theirs).max().item(), 1.01, f"{line} to {size}")

    def check_training(self, size, *flags):
        """Each row against torchvision's functions, with what chance decided here: the greatest and the mean
        difference of all."""
        dataset = datasets.ImageFolder(self.root / "train")
        rows = self.load(size, "--train", "--views=2", *flags)
        self.assertEqual(sorted(line["sample"] for line, _ in rows), sorted(2 * list(range(len(SIZES)))))
        differences = []
        for line, ours in rows:
            image, label = dataset[line["sample"]]
            self.assertEqual(line["label"], label)
            image = functional.resized_crop(image, *line["crop"], [size, size])
            if line["flip"]:
                image = functional.hflip(image)
            theirs = functional.normalize(functional.to_tensor(image), MEAN, DEVIATION)
            if line.get("erasure", [0, 0, 0, 0])[2] > 0:
                theirs = functional.erase(theirs, *line["erasure"], v=0)
            differences.append(self.levels(ours, theirs))
        differences = torch.stack(differences)
        self.assertEqual({line["flip"] for line, _ in rows}, {True, False})
        return differences.max().item(), differences.mean().item()

    def test_training(self):
        # Enlarged for the most part, so that all is decoded at full resolution.
        self.assertLess(self.check_training(90, "--detail=1000")[0], 1.01)

    def test_random_erasing(self):
        self.assertLess(self.check_training(40, "--detail=1000", "--random-erasing")[0], 1.01)

    def test_decoding_at_a_lower_resolution_is_close(self):
        largest, mean = self.check_training(12)
        print(f"at a lower resolution: up to {largest:.1f} levels, {mean:.2f} on average")
        self.assertGreater(largest, 1.01)  # it was lower
        self.assertLess(largest, 8)
        self.assertLess(mean, 1)


if __name__ == "__main__":
    unittest.main()
