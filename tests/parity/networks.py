"""PyTorch and torchvision versions of the networks that a spec can name."""

import torch
import torchvision
from torch import nn

RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101")


class Residual(nn.Module):
    """A spec's residual layer."""

    def __init__(self, layers, shortcut=()):
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.shortcut = nn.Sequential(*shortcut)

    def forward(self, x):
        return self.layers(x) + self.shortcut(x)


def small_cnn(channels, size, classes):
    features = (size // 4) ** 2 * 64
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, classes))


def mlp(channels, size, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * size ** 2, 256), nn.ReLU(), nn.Linear(256, 128),
                         nn.ReLU(), nn.Linear(128, classes))


def resnet(spec, channels, classes):
    model = getattr(torchvision.models, spec["name"])(
        weights=None, num_classes=classes, zero_init_residual=spec.get("zero_init_residual", False))
    small_stem = spec.get("small_stem", False)
    if not spec.get("stem_pool", not small_stem):
        model.maxpool = nn.Identity()
    if small_stem:
        model.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
    elif channels != 3:
        model.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    return model


def mobilenet_v2(spec, channels, classes):
    model = torchvision.models.mobilenet_v2(weights=None, num_classes=classes, dropout=spec.get("dropout", 0.2))
    if channels != 3:
        model.features[0][0] = nn.Conv2d(channels, 32, 3, stride=2, padding=1, bias=False)
        nn.init.kaiming_normal_(model.features[0][0].weight, mode="fan_out")
    return model


def network(spec, channels, size, classes):
    """PyTorch's network for a ModelSpec (a dict), newly initialized."""
    name = spec["name"]
    if name == "small_cnn":
        return small_cnn(channels, size, classes)
    if name == "mlp":
        return mlp(channels, size, classes)
    if name == "mobilenet_v2":
        return mobilenet_v2(spec, channels, classes)
    return resnet(spec, channels, classes)


def spread_statistics(model, images):
    """Gives every batch norm running statistics, weights and biases that differ by channel and keep values moderate.

    A forward pass over the images sets the statistics, which are then perturbed. Variances are only increased, because
    a hundred layers that each divide by too small a value would amplify rounding.
    """
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, 0, 0.2)
    with torch.no_grad():
        model.train()(images)
        for norm in norms:
            norm.running_mean += 0.2 * norm.running_var.sqrt() * torch.randn_like(norm.running_mean)
            norm.running_var *= torch.empty_like(norm.running_var).uniform_(1, 2)
            norm.momentum = 0.1


# Layers of a spec that cover its options; custom_network is the same in PyTorch.
CUSTOM_LAYERS = {"layers": [
    {"conv2d": {"out_channels": 12, "kernel": 5, "stride": 2, "padding": 2, "bias": False}},
    {"batch_norm2d": {"epsilon": 1e-3, "momentum": 0.3}},
    {"relu6": {}},
    {"residual": {
        "layers": [
            {"conv2d": {"out_channels": 24, "kernel": 3, "padding": 1, "groups": 4}},
            {"relu": {}},
            {"residual": {"layers": [{"conv2d": {"out_channels": 24, "kernel": 3, "padding": 1, "groups": 24}},
                                     {"batch_norm2d": {}}]}},
        ],
        "shortcut": [{"conv2d": {"out_channels": 24, "kernel": 1, "bias": False}}]}},
    {"relu": {}},
    {"max_pool2d": {"kernel": 3, "stride": 2, "padding": 1}},
    {"residual": {"layers": [{"batch_norm2d": {}}, {"relu": {}},
                             {"conv2d": {"out_channels": 24, "kernel": 3, "padding": 1}}]}},
    {"avg_pool2d": {"kernel": 2, "stride": 1}},
    {"max_pool2d": {"kernel": 2}},
    {"flatten": {}},
    {"linear": {"out_features": 20, "bias": False}},
    {"relu": {}},
    {"linear": {}},
]}


def custom_network(channels, size, classes):
    places = (((size + 1) // 2 + 1) // 2 - 1) // 2
    inner = Residual([nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.BatchNorm2d(24)])
    return nn.Sequential(
        nn.Conv2d(channels, 12, 5, stride=2, padding=2, bias=False), nn.BatchNorm2d(12, eps=1e-3, momentum=0.3),
        nn.ReLU6(),
        Residual([nn.Conv2d(12, 24, 3, padding=1, groups=4), nn.ReLU(), inner], [nn.Conv2d(12, 24, 1, bias=False)]),
        nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1),
        Residual([nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1)]),
        nn.AvgPool2d(2, stride=1), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(24 * places ** 2, 20, bias=False), nn.ReLU(), nn.Linear(20, classes))
