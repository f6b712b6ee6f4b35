"""Models match torchvision: names, weights in both directions, logits, and initialization."""

import math
import unittest

import torch

from tests.parity.driver import Driver, random_images
from tests.parity.networks import CUSTOM_LAYERS, custom_network, network, spread_statistics


class LogitsCase(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def check(self, text, ours, theirs, largest_scale=1):
        """Checks agreement within 1e-4, relative to the largest logit if all are small."""
        largest = theirs.abs().max().item()
        difference = (ours - theirs).abs().max().item()
        print(f"{text}: logits up to {largest:.3g} differ by {difference:.2e}")
        self.assertGreater(largest, 0)
        self.assertLessEqual(difference, 1e-4 * min(largest_scale, largest), text)

    def compare(self, spec, model, channels, size, samples=3):
        """Evaluates Muster's model with PyTorch's weights."""
        images, labels = random_images(samples, channels, size)
        spread_statistics(model, random_images(32 if size < 64 else 8, channels, size, seed=2)[0])
        with torch.no_grad(), Driver(spec, images, labels) as driver:
            # An odd number of samples in batches of two.
            ours = driver.evaluate(2, model.state_dict())
            theirs = model.eval()(images)
        self.check(f"{spec.get('name', 'layers')} on {size}x{size}x{channels}", ours.logits, theirs)
        state_dict = model.state_dict()
        self.assertEqual(ours.state_dict.keys(), state_dict.keys())
        for name, tensor in ours.state_dict.items():
            if not name.endswith("num_batches_tracked"):
                self.assertTrue(torch.equal(tensor, state_dict[name]), f"{name} changed on its way in and out")

    def compare_named(self, spec, channels, size):
        torch.manual_seed(1)
        self.compare(spec, network(spec, channels, size, 10), channels, size)


class LogitsTest(LogitsCase):
    def test_small_models(self):
        for name in ("small_cnn", "mlp"):
            self.compare_named({"name": name}, 3, 21)

    def test_resnet18(self):
        for channels, size in ((1, 28), (3, 64), (3, 45)):
            self.compare_named({"name": "resnet18"}, channels, size)

    def test_resnet18_stems(self):
        self.compare_named({"name": "resnet18", "small_stem": True}, 3, 28)
        self.compare_named({"name": "resnet18", "small_stem": True, "stem_pool": True}, 1, 28)
        self.compare_named({"name": "resnet18", "stem_pool": False}, 3, 28)

    def test_resnet34(self):
        for channels, size in ((1, 28), (3, 64)):
            self.compare_named({"name": "resnet34"}, channels, size)

    def test_resnet50(self):
        for channels, size in ((1, 28), (3, 64)):
            self.compare_named({"name": "resnet50"}, channels, size)

    def test_resnet101(self):
        self.compare_named({"name": "resnet101"}, 3, 64)

    def test_mobilenet_v2(self):
        for channels, size in ((1, 28), (3, 64), (3, 224)):
            self.compare_named({"name": "mobilenet_v2"}, channels, size)

    def test_custom_layers(self):
        torch.manual_seed(1)
        for channels, size in ((1, 28), (3, 33)):
            self.compare(CUSTOM_LAYERS, custom_network(channels, size, 10), channels, size)


class LogitsLongTest(LogitsCase):
    """Every model at every size."""

    def test_all(self):
        for name in ("resnet18", "resnet34", "resnet50", "resnet101", "mobilenet_v2"):
            for channels in (1, 3):
                for size in (28, 64, 224):
                    self.compare_named({"name": name}, channels, size)


class FreshModelTest(LogitsCase):
    """Evaluates PyTorch's model with Muster's initial weights."""

    def fresh(self, spec, model, channels=3, size=32):
        images, labels = random_images(2, channels, size)
        with Driver(spec, images, labels) as driver:
            ours = driver.evaluate(2, seed=7)
        self.compare_statistics(ours.state_dict, model.state_dict())
        model.load_state_dict(ours.state_dict, strict=True)
        with torch.no_grad():
            # Initial running statistics do not normalize, so logits may be of any size.
            self.check(f"fresh {spec.get('name', 'layers')}", ours.logits, model.eval()(images), math.inf)

    def compare_statistics(self, ours, theirs):
        """Checks that both are samples of the same distribution: mean and deviation within five standard errors."""
        for name, their in theirs.items():
            our, their = ours[name].double(), their.double()
            self.assertEqual(our.shape, their.shape, name)
            count, deviation = their.numel(), their.std(unbiased=False).item() if their.numel() > 1 else 0
            if deviation == 0:
                self.assertTrue(torch.equal(our, their), f"{name} is constant in PyTorch")
                continue
            error = 5 * deviation * math.sqrt(2 / count)
            self.assertLess(abs(our.mean() - their.mean()), error, f"mean of {name}")
            self.assertLess(abs(our.std() - their.std()), error, f"deviation of {name}")
            if count >= 100:
                # A uniform distribution ends at 1.73 standard deviations; 8% of a normal
                # distribution lie beyond.
                beyond = [(t.abs() > 1.9 * t.std()).any().item() for t in (our, their)]
                self.assertEqual(*beyond, f"{name}: uniform or normal")

    def fresh_named(self, spec, **shape):
        torch.manual_seed(3)
        self.fresh(spec, network(spec, shape.get("channels", 3), shape.get("size", 32), 10), **shape)

    def test_small_models(self):
        for name in ("small_cnn", "mlp"):
            self.fresh_named({"name": name}, channels=1, size=28)

    def test_resnet18(self):
        self.fresh_named({"name": "resnet18"})
        self.fresh_named({"name": "resnet18", "small_stem": True, "zero_init_residual": True}, channels=1)

    def test_resnet50(self):
        self.fresh_named({"name": "resnet50", "zero_init_residual": True})

    def test_mobilenet_v2(self):
        self.fresh_named({"name": "mobilenet_v2"})

    def test_custom_layers(self):
        torch.manual_seed(3)
        self.fresh(CUSTOM_LAYERS, custom_network(3, 32, 10))


if __name__ == "__main__":
    unittest.main()
