"""Training matches PyTorch: gradients of one step and losses of 100 steps, from the same weights and batches."""

import copy
import os
import unittest

# Set before importing torch: spinning threads are many times slower on busy cores.
os.environ["OMP_WAIT_POLICY"] = "passive"

# pylint: disable=wrong-import-position
import numpy
import torch
from torch import nn

from tests.parity.driver import Driver, fashion_mnist, random_images
from tests.parity.networks import CUSTOM_LAYERS, custom_network, network

LEARNING_RATE = 0.01
MOMENTUM = 0.9


def train(model, images, labels, batch, steps, threads=1, memory_format=torch.contiguous_format):
    """PyTorch's losses, the first step's gradients and the final state_dict. Does not modify the model."""
    torch.set_num_threads(threads)
    model = copy.deepcopy(model).train().to(memory_format=memory_format)
    images = images.to(next(model.parameters()).dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    losses, gradients = [], {}
    for step in range(steps):
        selected = slice(step * batch, (step + 1) * batch)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[selected].to(memory_format=memory_format)), labels[selected])
        loss.backward()
        losses.append(loss.item())
        gradients = gradients or {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
    return numpy.array(losses), gradients, model.state_dict()


def distance(a, b):
    return (a.double() - b.double()).norm()


class GradientsTest(unittest.TestCase):
    """||ours - theirs|| / ||theirs|| of each tensor, in one step.

    PyTorch's own rounding is measured by the same step in float64.
    """

    def differences(self, text, spec, model, images, labels):
        """For each tensor: difference of Muster from PyTorch, and of PyTorch from float64."""
        with Driver(spec, images, labels) as driver:
            outcome = driver.train(len(labels), 1, model.state_dict())
        # Uses PyTorch's own convolutions: with its oneDNN, the gradient of a layer with one channel
        # itself differs by 1e-4 from float64.
        with torch.backends.mkldnn.flags(enabled=False):
            _, theirs, their_state = train(model, images, labels, len(labels), 1)
        _, exact, _ = train(copy.deepcopy(model).double(), images, labels, len(labels), 1, threads=2)
        self.check_statistics(outcome.state_dict, their_state)
        ours = outcome.gradients
        self.assertEqual(ours.keys(), theirs.keys())
        differences, their_errors, our_errors = {}, {}, {}
        for name in theirs:
            # A bias before a batch norm has almost no gradient, so its difference is relative to
            # the gradient of the layer's weight.
            weight = exact[name.replace("bias", "weight")].norm()
            scale = exact[name].norm() if exact[name].norm() > 0.01 * weight else weight
            differences[name] = distance(ours[name], theirs[name]) / scale
            their_errors[name] = distance(theirs[name], exact[name]) / scale
            our_errors[name] = distance(ours[name], exact[name]) / scale
        worst = max(differences, key=differences.get)
        print(f"{text}: {len(differences)} gradients, largest difference {differences[worst]:.2e} ({worst}), "
              f"median {torch.tensor(list(differences.values())).median():.2e}; from float64 ours at most "
              f"{max(our_errors.values()):.2e}, PyTorch's {max(their_errors.values()):.2e}")
        return differences, their_errors

    def check_statistics(self, ours, theirs):
        """Compares batch norm's running statistics after the step."""
        for name, their in theirs.items():
            if name.endswith("num_batches_tracked"):
                self.assertEqual(ours[name], their, name)
            elif name.endswith(("running_mean", "running_var")):
                self.assertLess(distance(ours[name], their), 1e-5 * their.norm(), name)

    def compare(self, text, spec, model, images, labels, tolerance=1e-5):
        differences, _ = self.differences(text, spec, model, images, labels)
        for name, difference in differences.items():
            self.assertLessEqual(difference, tolerance, name)

    def compare_clear_of_kinks(self, spec, size):
        """Deep networks: within three times PyTorch's own largest rounding error.

        Rounding that moves one activation of the last layers across zero would change every gradient by a hundredth,
        so all activations are kept away from zero, and max pooling is not used.
        """
        torch.manual_seed(1)
        model = network(spec, 3, size, 10)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.25, 0.35)
                nn.init.constant_(module.bias, 1.5)
        differences, their_errors = self.differences(spec["name"], spec, model, *random_images(8, 3, size))
        self.assertLess(max(their_errors.values()), 2e-4, "PyTorch's own rounding error is too large")
        self.assertLessEqual(max(differences.values()), 3 * max(their_errors.values()))

    def test_small_cnn(self):
        torch.manual_seed(1)
        self.compare("small_cnn", {"name": "small_cnn"}, network({"name": "small_cnn"}, 1, 28, 10),
                     *fashion_mnist(64))

    def test_resnet18(self):
        torch.manual_seed(1)
        self.compare("resnet18", {"name": "resnet18"}, network({"name": "resnet18"}, 1, 28, 10), *fashion_mnist(32))

    def test_custom_layers(self):
        torch.manual_seed(1)
        # The gradient of a bias before a batch norm consists of rounding errors only.
        self.compare("layers", CUSTOM_LAYERS, custom_network(1, 28, 10), *fashion_mnist(32), tolerance=4e-5)

    def test_resnet50(self):
        self.compare_clear_of_kinks({"name": "resnet50", "stem_pool": False}, 32)

    def test_mobilenet_v2(self):
        self.compare_clear_of_kinks({"name": "mobilenet_v2", "dropout": 0}, 48)


class LossesTest(unittest.TestCase):
    """100 losses are as close to PyTorch's as PyTorch's with different thread counts and memory formats to each other."""

    STEPS = 100

    def compare(self, name, batch):
        torch.manual_seed(1)
        model = network({"name": name}, 1, 28, 10)
        images, labels = fashion_mnist(batch * self.STEPS)
        with Driver({"name": name}, images, labels) as driver:
            ours = driver.train(batch, self.STEPS, model.state_dict(), LEARNING_RATE, MOMENTUM).losses
        theirs = train(model, images, labels, batch, self.STEPS)[0]
        others = [train(model, images, labels, batch, self.STEPS, threads=2)[0],
                  train(model, images, labels, batch, self.STEPS, memory_format=torch.channels_last)[0]]
        runs = [theirs, *others]
        # Differences grow with the steps, so the bound is the largest difference up to each step.
        spread = numpy.maximum.accumulate(numpy.ptp(runs, axis=0))
        difference = numpy.abs(ours - theirs)
        for step in (0, 9, 29, 99):
            print(f"{name} step {step + 1}: loss {theirs[step]:.6f}, ours differs by {difference[step]:.2e}, "
                  f"PyTorch's spread {spread[step]:.2e}")
        print(f"{name}: largest difference {difference.max():.2e}, largest spread {spread[-1]:.2e}")
        self.assertLess(theirs[-10:].mean(), 0.8 * theirs[0], "the loss did not decrease")
        bound = numpy.maximum(1e-4, 3 * spread)
        self.assertTrue((difference <= bound).all(), f"steps {numpy.nonzero(difference > bound)[0] + 1}")

    def test_small_cnn(self):
        self.compare("small_cnn", 64)

    def test_resnet18(self):
        self.compare("resnet18", 32)


if __name__ == "__main__":
    unittest.main()
