"""Transforms of an image folder match those of torchvision."""

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
    """Returns noise of several octaves, all coarse enough to hide JPEG rounding."""
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
                # Real datasets contain grayscale images and chroma subsampling.
                image = image.convert("L") if i == 4 else image
                image.save(directory / f"{i}.jpg", quality=92, subsampling=0 if i % 2 else 2)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def load(self, size, *flags):
        """Returns [(the description that the driver prints, the transformed sample as a CHW tensor)]."""
        output = self.root / "output"
        result = subprocess.run([binary("tests/images/transform_driver"), f"--data={self.root}", f"--output={output}",
                                 f"--size={size}", *flags], check=True, stdout=subprocess.PIPE, text=True)
        descriptions = [json.loads(line) for line in result.stdout.splitlines()]
        samples = numpy.fromfile(output, numpy.float32).reshape(len(descriptions), size, size, 3)
        return list(zip(descriptions, torch.from_numpy(samples).permute(0, 3, 1, 2)))

    def levels(self, ours, theirs):
        """Returns the absolute difference in brightness levels, from 0 to 255."""
        return (ours - theirs).abs() * torch.tensor(DEVIATION).reshape(3, 1, 1) * 255

    def test_evaluation(self):
        for size, center_crop, resized in ((28, 0.875, 32), (56, 1, 56), (45, 0.9, 50)):
            pipeline = transforms.Compose([transforms.Resize(resized), transforms.CenterCrop(size),
                                           transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)])
            dataset = datasets.ImageFolder(self.root / "val", pipeline)
            samples = self.load(size, f"--center-crop={center_crop}", "--detail=1000")
            self.assertEqual([d["sample"] for d, _ in samples], list(range(len(SIZES))))
            for description, ours in samples:
                theirs, label = dataset[description["sample"]]
                self.assertEqual(description["label"], label)
                self.assertLess(self.levels(ours, theirs).max().item(), 1.01, f"{description} to {size}")

    def check_training(self, size, *flags):
        """Compares each sample with torchvision's functions, given the random choices that the driver prints.
        Returns the maximum and the mean difference."""
        dataset = datasets.ImageFolder(self.root / "train")
        samples = self.load(size, "--train", "--views=2", *flags)
        self.assertEqual(sorted(d["sample"] for d, _ in samples), sorted(2 * list(range(len(SIZES)))))
        differences = []
        for description, ours in samples:
            image, label = dataset[description["sample"]]
            self.assertEqual(description["label"], label)
            image = functional.resized_crop(image, *description["crop"], [size, size])
            if description["flip"]:
                image = functional.hflip(image)
            theirs = functional.normalize(functional.to_tensor(image), MEAN, DEVIATION)
            if description.get("erasure", [0, 0, 0, 0])[2] > 0:
                theirs = functional.erase(theirs, *description["erasure"], v=0)
            differences.append(self.levels(ours, theirs))
        differences = torch.stack(differences)
        self.assertEqual({d["flip"] for d, _ in samples}, {True, False})
        return differences.max().item(), differences.mean().item()

    def test_training(self):
        # Most crops are enlarged, so images are decoded at full resolution.
        self.assertLess(self.check_training(90, "--detail=1000")[0], 1.01)

    def test_random_erasing(self):
        self.assertLess(self.check_training(40, "--detail=1000", "--random-erasing")[0], 1.01)

    def test_reduced_resolution_decoding_is_close(self):
        largest, mean = self.check_training(12)
        print(f"reduced resolution: up to {largest:.1f} levels, {mean:.2f} on average")
        self.assertGreater(largest, 1.01)  # the resolution was reduced
        self.assertLess(largest, 8)
        self.assertLess(mean, 1)


if __name__ == "__main__":
    unittest.main()
