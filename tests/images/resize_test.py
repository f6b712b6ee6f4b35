"""Resizing matches Pillow's within one brightness level."""

import pathlib
import struct
import subprocess
import tempfile
import unittest

import numpy
from PIL import Image

from tests.support.daemon import binary


def resize(cases):
    """Resizes [(pixels, box as (left, top, right, bottom), (width, height), flip)]; returns for each case an array
    [kernel set, height, width, channels]."""
    with tempfile.TemporaryDirectory(prefix="muster-resize.") as folder:
        inputs, outputs = pathlib.Path(folder) / "inputs", pathlib.Path(folder) / "outputs"
        with open(inputs, "wb") as out:
            for pixels, (left, top, right, bottom), (width, height), flip in cases:
                out.write(struct.pack("=6i4d", *pixels.shape, height, width, flip, top, left, bottom - top, right - left))
                out.write(pixels.tobytes())
        subprocess.run([binary("tests/images/resize_driver"), inputs, outputs], check=True)
        resized = numpy.fromfile(outputs, numpy.uint8)
    sizes = [height * width * pixels.shape[2] for pixels, _, (width, height), _ in cases]
    sets = len(resized) // sum(sizes)
    assert sets >= 2 and sets * sum(sizes) == len(resized)
    results, at = [], 0
    for (pixels, _, (width, height), _), size in zip(cases, sizes):
        results.append(resized[at:at + sets * size].reshape(sets, height, width, pixels.shape[2]))
        at += sets * size
    return results


def resize_with_pillow(pixels, box, size, flip):
    image = Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0])
    image = image.resize(size, Image.BILINEAR, box=box)
    if flip:
        image = image.transpose(Image.FLIP_LEFT_RIGHT)
    return numpy.asarray(image).reshape(size[1], size[0], pixels.shape[2])


class ResizeTest(unittest.TestCase):
    def check(self, cases):
        for case, results in zip(cases, resize(cases)):
            expected = resize_with_pillow(*case).astype(int)
            for result in results:
                difference = numpy.abs(result.astype(int) - expected)
                self.assertLessEqual(difference.max(), 1, f"{case[0].shape} {case[1:]}")

    def test_random_images_and_boxes(self):
        rng = numpy.random.default_rng(1)
        cases = []
        for i in range(150):
            height, width = rng.integers(1, 120, 2)
            pixels = rng.integers(0, 256, (height, width, 3 if i % 3 else 1), numpy.uint8)
            left, top = rng.uniform(0, 0.95) * width, rng.uniform(0, 0.95) * height
            box = (left, top, left + rng.uniform(0.02, 1) * (width - left), top + rng.uniform(0.02, 1) * (height - top))
            cases.append((pixels, box, tuple(int(side) for side in rng.integers(1, 90, 2)), bool(i % 2)))
        self.check(cases)

    def test_whole_images(self):
        rng = numpy.random.default_rng(2)
        cases = []
        for (width, height), size in [((500, 375), (224, 224)), ((32, 32), (112, 112)), ((28, 28), (28, 28)),
                                      ((1, 1), (3, 2)), ((640, 2), (2, 9))]:
            for channels in (1, 3):
                pixels = rng.integers(0, 256, (height, width, channels), numpy.uint8)
                cases.append((pixels, (0, 0, width, height), size, False))
        self.check(cases)

    def test_preserves_mean_brightness(self):
        pixels = numpy.random.default_rng(3).integers(0, 256, (300, 300, 3), numpy.uint8)
        case = (pixels, (11.3, 20.7, 260.1, 290.2), (150, 170), False)
        expected = resize_with_pillow(*case).mean()
        for result in resize([case])[0]:
            self.assertAlmostEqual(result.mean(), expected, delta=0.02)

    def test_black_and_white(self):
        """Black and white are preserved, and edges do not overshoot."""
        cases = []
        for value in (0, 255):
            cases.append((numpy.full((41, 43, 3), value, numpy.uint8), (3, 4, 40, 41), (17, 60), False))
        board = (numpy.indices((41, 43)).sum(0) % 2 * 255).astype(numpy.uint8)[:, :, None].repeat(3, 2)
        cases.append((board, (0, 0, 43, 41), (100, 20), True))
        self.check(cases)


if __name__ == "__main__":
    unittest.main()
