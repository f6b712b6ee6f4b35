"""JPEG decoding is bit-identical to Pillow's."""

import io
import pathlib
import subprocess
import tempfile
import unittest

import numpy
from PIL import Image

from tests.support.daemon import binary

SUBSAMPLING = {"4:4:4": 0, "4:2:2": 1, "4:2:0": 2}


def noisy_image(rng, mode, width, height):
    """Returns noise on smooth shapes, with sharp colour edges and saturated pixels."""
    channels = {"L": 1, "RGB": 3, "CMYK": 4}[mode]
    coarse = rng.integers(0, 256, (5, 6, channels), numpy.uint8)
    planes = [Image.fromarray(coarse[:, :, c]).resize((width, height), Image.BICUBIC) for c in range(channels)]
    pixels = numpy.stack([numpy.asarray(plane) for plane in planes], axis=-1).astype(int)
    pixels += rng.integers(-40, 41, pixels.shape)
    pixels = pixels.clip(0, 255).astype(numpy.uint8)
    return Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels, mode)


class JpegTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-jpeg.")
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "image.jpg"

    def check(self, image, **options):
        image.save(self.file, **options)
        output = subprocess.run([binary("tests/images/jpeg_driver"), self.file], check=True, capture_output=True).stdout
        ours = numpy.asarray(Image.open(io.BytesIO(output)))
        with Image.open(self.file) as opened:
            self.assertEqual(opened.mode, image.mode)
            theirs = numpy.asarray(opened.convert("RGB"))
        numpy.testing.assert_array_equal(ours, theirs, f"{image.mode} {image.size} {options}")

    def test_rgb_subsampling_quality_and_progressive(self):
        rng = numpy.random.default_rng(1)
        for subsampling in SUBSAMPLING.values():
            for progressive in (False, True):
                for quality in (25, 75, 95):
                    width, height = (int(side) for side in rng.integers(1, 150, 2))
                    self.check(noisy_image(rng, "RGB", width, height), quality=quality, subsampling=subsampling,
                               progressive=progressive)

    def test_photograph_size(self):
        self.check(noisy_image(numpy.random.default_rng(2), "RGB", 500, 375), quality=90)

    def test_grayscale_and_cmyk(self):
        rng = numpy.random.default_rng(3)
        for mode in ("L", "CMYK"):
            for width, height in ((1, 1), (37, 64), (128, 75)):
                self.check(noisy_image(rng, mode, width, height), quality=85)


if __name__ == "__main__":
    unittest.main()
