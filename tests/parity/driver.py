"""Runs model_driver and reads its output files."""

import dataclasses
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import numpy
import torch

from tests.parity import safetensors
from tests.support.daemon import binary

FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")


@dataclasses.dataclass
class Results:
    logits: torch.Tensor = None
    losses: numpy.ndarray = None
    gradients: dict = None
    state_dict: dict = None


class Driver:
    """A model and its input and output files in a temporary directory; a context manager."""

    def __init__(self, spec, images, labels, classes=10):
        """images: [samples, channels, height, width]."""
        self._directory = pathlib.Path(tempfile.mkdtemp(prefix="muster-parity."))
        self._samples, self._classes = len(labels), classes
        channels, height, width = images.shape[1:]
        self._write("images", images.permute(0, 2, 3, 1).contiguous().numpy().astype(numpy.float32))
        self._write("labels", labels.numpy().astype(numpy.int32))
        self._argv = [binary("tests/parity/model_driver"), f"--model={json.dumps(spec)}",
                      f"--input={height},{width},{channels}", f"--classes={classes}", "--threads=2",
                      f"--images={self._path('images')}", f"--labels={self._path('labels')}"]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        shutil.rmtree(self._directory)

    def evaluate(self, batch, state_dict=None, seed=1):
        """Logits of all images and the exported model, with the given or newly initialized weights."""
        self._run(f"--batch={batch}", f"--logits={self._path('logits')}", f"--export={self._path('export')}",
                  *self._start(state_dict, seed))
        logits = numpy.fromfile(self._path("logits"), numpy.float32).reshape(self._samples, self._classes)
        return Results(logits=torch.from_numpy(logits), state_dict=safetensors.load(self._path("export")))

    def train(self, batch, steps, state_dict, learning_rate=0.01, momentum=0.9):
        """Losses of all steps, gradients of the first step, and the exported model."""
        self._run(f"--batch={batch}", f"--steps={steps}", f"--learning-rate={learning_rate}",
                  f"--momentum={momentum}", f"--losses={self._path('losses')}",
                  f"--gradients={self._path('gradients')}", f"--export={self._path('export')}",
                  *self._start(state_dict, 1))
        return Results(losses=numpy.fromfile(self._path("losses"), numpy.float64),
                       gradients=safetensors.load(self._path("gradients")),
                       state_dict=safetensors.load(self._path("export")))

    def _start(self, state_dict, seed):
        if state_dict is None:
            return [f"--seed={seed}"]
        safetensors.save(self._path("weights"), state_dict)
        return [f"--weights={self._path('weights')}"]

    def _path(self, name):
        return self._directory / name

    def _write(self, name, values):
        values.tofile(self._path(name))

    def _run(self, *flags):
        result = subprocess.run([*self._argv, *flags], text=True, capture_output=True, check=False,
                                env=dict(os.environ))
        assert result.returncode == 0, result.stderr


def random_images(samples, channels, size, seed=1):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(samples, channels, size, size, generator=generator)
    return images, torch.randint(0, 10, (samples,), generator=generator)


def fashion_mnist(samples):
    """The first `samples` training images, normalized, [samples, 1, 28, 28], and their labels."""
    def read(name, header, count):
        with gzip.open(FASHION_MNIST / f"train-{name}.gz") as file:
            return numpy.frombuffer(file.read(header + count)[header:], numpy.uint8)
    pixels = torch.from_numpy(read("images-idx3-ubyte", 16, samples * 784).reshape(samples, 1, 28, 28).copy())
    labels = torch.from_numpy(read("labels-idx1-ubyte", 8, samples).astype(numpy.int64))
    return (pixels.float() / 255 - 0.2860) / 0.3530, labels
