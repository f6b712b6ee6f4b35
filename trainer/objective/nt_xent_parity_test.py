"""Compares NT-Xent and its gradient on several ranks with a PyTorch implementation and autograd."""

import subprocess
import unittest

import numpy
import torch
from torch.nn import functional

from tests.support.cluster import binary

DRIVER = "trainer/objective/nt_xent_parity_driver"


def nt_xent(embeddings, temperature):
    """Views interleaved: the positive of sample i is sample i ^ 1."""
    units = functional.normalize(embeddings)
    logits = units @ units.T / temperature
    logits = logits.masked_fill(torch.eye(len(units), dtype=torch.bool), -torch.inf)
    return functional.cross_entropy(logits, torch.arange(len(units)) ^ 1), logits


def by_torch(embeddings, temperature):
    """Returns mean loss, number of correct samples and gradient, in double."""
    leaf = torch.tensor(embeddings, dtype=torch.float64, requires_grad=True)
    loss, logits = nt_xent(leaf, temperature)
    loss.backward()
    correct = (logits.argmax(1) == torch.arange(len(leaf)) ^ 1).sum()
    return loss.item(), correct.item(), leaf.grad.numpy()


def by_muster(embeddings, temperature, samples):
    out = subprocess.run([binary(DRIVER), str(temperature), str(embeddings.shape[1]), *map(str, samples)],
                         input=embeddings.tobytes(), stdout=subprocess.PIPE, check=True, timeout=60).stdout
    loss, correct = numpy.frombuffer(out[:16], numpy.float64)
    return loss, correct, numpy.frombuffer(out[16:], numpy.float32).reshape(embeddings.shape)


def views(images, width, seed, noise=0.7):
    """Returns two noisy views of each image, adjacent and of different lengths."""
    random = numpy.random.default_rng(seed)
    values = numpy.repeat(random.normal(size=(images, width)), 2, axis=0)
    values += noise * random.normal(size=values.shape)
    return (values * random.uniform(0.1, 10, size=(2 * images, 1))).astype(numpy.float32)


class NtXentParityTest(unittest.TestCase):
    def check(self, embeddings, temperature, samples, tolerance=1e-5):
        loss, correct, gradient = by_torch(embeddings, temperature)
        own_loss, own_correct, own_gradient = by_muster(embeddings, temperature, samples)
        self.assertAlmostEqual(own_loss, loss, delta=tolerance * max(1, loss))
        self.assertEqual(own_correct, correct)
        self.assertGreater(numpy.abs(gradient).max(), 1e-4)
        numpy.testing.assert_allclose(own_gradient, gradient, rtol=0,
                                      atol=tolerance * max(1, numpy.abs(gradient).max()))

    def test_one_two_and_four_ranks(self):
        embeddings = views(images=32, width=128, seed=1)
        for samples in ([64], [32, 32], [16, 16, 16, 16]):
            with self.subTest(samples=samples):
                self.check(embeddings, 0.5, samples)

    def test_uneven_shares(self):
        embeddings = views(images=10, width=33, seed=2)
        for samples in ([4, 6, 4, 6], [0, 20, 0, 0], [2, 18]):
            with self.subTest(samples=samples):
                self.check(embeddings, 0.2, samples)

    def test_temperatures(self):
        embeddings = views(images=21, width=17, seed=3)
        for temperature in (0.01, 0.07, 1, 10):
            with self.subTest(temperature=temperature):
                self.check(embeddings, temperature, [10, 20, 12])

    def test_noise_alone(self):
        self.check(views(images=50, width=5, seed=4, noise=100), 0.1, [40, 60])


if __name__ == "__main__":
    unittest.main()
