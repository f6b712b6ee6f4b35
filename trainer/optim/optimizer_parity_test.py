"""Compares optimizers and schedules with PyTorch's, step by step on the same random gradients."""

import math
import pathlib
import subprocess
import unittest
import warnings

import numpy
import torch
from torch.optim import lr_scheduler

DRIVER = pathlib.Path("trainer/optim/optimizer_parity_driver")
SHAPES = [(7, 3, 3, 3), (7,), (13, 17), (13,), (1, 1)]
STEPS = 50
STEPS_PER_EPOCH = 10
TOLERANCE = 1e-6  # of the largest magnitude that the tensor has had: a single number may pass by zero


def text_format(fields):
    """Formats a proto of numbers, words and lists of numbers in text format."""
    parts = []
    for key, value in fields.items():
        for item in value if isinstance(value, list) else [value]:
            text = f'"{item}"' if isinstance(item, str) else str(item).lower()
            parts.append(f"{key}: {text}")
    return " ".join(parts)


class Problem:
    """Parameters and each step's gradients, whose scales vary between tensors and steps."""

    def __init__(self, seed=1, scale=1.0):
        random = torch.Generator().manual_seed(seed)
        self.parameters = [torch.randn(shape, generator=random) * (i + 1) / 3
                           for i, shape in enumerate(SHAPES)]
        self.gradients = [[torch.randn(shape, generator=random) * scale * (1 + math.sin(step)) * 0.3**i
                           for i, shape in enumerate(SHAPES)] for step in range(STEPS)]

    def ours(self, optimizer, schedule):
        """Returns (learning rate, norm, parameters) of each step."""
        tensors = self.parameters + [g for step in self.gradients for g in step]
        done = subprocess.run(
            [DRIVER, text_format(optimizer), text_format(schedule), str(STEPS), str(STEPS_PER_EPOCH)]
            + ["x".join(map(str, shape)) for shape in SHAPES],
            input=b"".join(t.numpy().tobytes() for t in tensors), stdout=subprocess.PIPE, check=True)
        counts = [math.prod(shape) for shape in SHAPES]
        record = 16 + 4 * sum(counts)
        assert len(done.stdout) == STEPS * record
        for begin in range(0, len(done.stdout), record):
            rate, norm = numpy.frombuffer(done.stdout, numpy.float64, 2, begin)
            flat = torch.from_numpy(numpy.frombuffer(done.stdout, numpy.float32, sum(counts), begin + 16).copy())
            yield rate, norm, [part.reshape(shape) for part, shape in zip(flat.split(counts), SHAPES)]


def run_torch(problem, make_optimizer, make_scheduler=None, clip_norm=None):
    """Returns the same values computed by PyTorch."""
    parameters = [torch.nn.Parameter(p.clone()) for p in problem.parameters]
    optimizer = make_optimizer(parameters)
    scheduler = make_scheduler(optimizer) if make_scheduler else None
    for gradients in problem.gradients:
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient.clone()
        norm = torch.nn.utils.clip_grad_norm_(parameters, clip_norm).item() if clip_norm else 0
        rate = optimizer.param_groups[0]["lr"]
        optimizer.step()
        if scheduler:
            scheduler.step()
        yield rate, norm, [p.detach().clone() for p in parameters]


def run_lars(problem, rate, momentum, weight_decay, trust_coefficient):
    """LARS (You et al. 2017, algorithm 1), without adaptation or decay for tensors of one dimension."""
    parameters = [p.double() for p in problem.parameters]
    velocities = [torch.zeros_like(p) for p in parameters]
    for gradients in problem.gradients:
        for w, v, g in zip(parameters, velocities, gradients):
            ratio, decay = 1.0, 0.0
            if w.dim() > 1:
                ratio, decay = trust_coefficient * w.norm() / (g.double().norm() + weight_decay * w.norm()), weight_decay
            v.mul_(momentum).add_(rate * ratio * (g.double() + decay * w))
            w.sub_(v)
        yield rate, 0, [p.float() for p in parameters]


class OptimizerParityTest(unittest.TestCase):
    def setUp(self):
        # SequentialLR itself causes a warning on the order of scheduler.step and optimizer.step.
        warnings.simplefilter("ignore")

    def check(self, ours, theirs, what):
        worst = worst_rate = worst_norm = 0.0
        steps = 0
        largest = [p.abs().max() for p in Problem().parameters]
        for (rate, norm, parameters), (torch_rate, torch_norm, torch_parameters) in zip(ours, theirs):
            worst_rate = max(worst_rate, abs(rate - torch_rate) / max(abs(torch_rate), 1e-12))
            worst_norm = max(worst_norm, abs(norm - torch_norm) / max(torch_norm, 1e-12))
            largest = [max(before, p.abs().max()) for before, p in zip(largest, torch_parameters)]
            for ours_tensor, torch_tensor, magnitude in zip(parameters, torch_parameters, largest):
                worst = max(worst, ((ours_tensor - torch_tensor).abs().max() / magnitude).item())
            steps += 1
        self.assertEqual(steps, STEPS)
        print(f"{what}: parameters within {worst:.1e}, rates {worst_rate:.1e}, norms {worst_norm:.1e}")
        self.assertLess(worst, TOLERANCE, what)
        self.assertLess(worst_rate, TOLERANCE, what)
        self.assertLess(worst_norm, TOLERANCE, what)
        moved = max((a - b).abs().max().item() for a, b in zip(parameters, Problem().parameters))
        self.assertGreater(moved, 1e-3, "nothing was trained")

    def test_sgd(self):
        for momentum, nesterov, decay in [(0, False, 0), (0.9, False, 5e-4), (0.9, True, 1e-3)]:
            self.check(
                Problem().ours({"name": "sgd", "learning_rate": 0.1, "momentum": momentum,
                                "nesterov": nesterov, "weight_decay": decay}, {}),
                run_torch(Problem(), lambda p: torch.optim.SGD(
                    p, lr=0.1, momentum=momentum, nesterov=nesterov, weight_decay=decay)),
                f"sgd, momentum {momentum}, nesterov {nesterov}, weight decay {decay}")

    def test_adamw(self):
        for beta1, beta2, epsilon, decay in [(0.9, 0.999, 1e-8, 0.01), (0.8, 0.95, 1e-6, 0.5), (0.9, 0.999, 1e-8, 0)]:
            self.check(
                Problem().ours({"name": "adamw", "learning_rate": 0.01, "beta1": beta1, "beta2": beta2,
                                "epsilon": epsilon, "weight_decay": decay}, {}),
                run_torch(Problem(), lambda p: torch.optim.AdamW(
                    p, lr=0.01, betas=(beta1, beta2), eps=epsilon, weight_decay=decay)),
                f"adamw, betas {beta1}, {beta2}, weight decay {decay}")

    def test_parameter_groups_without_decay(self):
        def groups(parameters):
            return [{"params": [p for p in parameters if p.dim() > 1]},
                    {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0}]
        for name, make in [
                ("sgd", lambda p: torch.optim.SGD(groups(p), lr=0.05, momentum=0.9, weight_decay=0.1)),
                ("adamw", lambda p: torch.optim.AdamW(groups(p), lr=0.05, weight_decay=0.1))]:
            fields = {"name": name, "learning_rate": 0.05, "weight_decay": 0.1, "exclude_norm_and_bias": True}
            fields.update({"momentum": 0.9} if name == "sgd" else {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8})
            self.check(Problem().ours(fields, {}), run_torch(Problem(), make), f"{name}, groups")

    def test_lars(self):
        self.check(
            Problem().ours({"name": "lars", "learning_rate": 0.2, "momentum": 0.9, "weight_decay": 1e-3,
                            "trust_coefficient": 0.02, "exclude_norm_and_bias": True}, {}),
            run_lars(Problem(), 0.2, 0.9, 1e-3, 0.02), "lars")

    def test_clipping(self):
        """The limit is between the smallest and the largest norm."""
        sgd = {"name": "sgd", "learning_rate": 0.1, "momentum": 0.9, "clip_norm": 5}
        norms = [norm for _, norm, _ in Problem().ours(sgd, {})]
        self.assertGreater(max(norms), 10)
        self.assertLess(min(norms), 5)
        self.check(Problem().ours(sgd, {}),
                   run_torch(Problem(), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), clip_norm=5),
                   "sgd, clipped")
        self.check(Problem().ours({"name": "adamw", "learning_rate": 0.01, "beta1": 0.9, "beta2": 0.999,
                                   "epsilon": 1e-8, "weight_decay": 0.01, "clip_norm": 5}, {}),
                   run_torch(Problem(), lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.01), clip_norm=5),
                   "adamw, clipped")

    def test_schedules(self):
        def warmed_up(steps, make_next):
            def make(optimizer):
                warmup = lr_scheduler.LinearLR(optimizer, start_factor=1 / (steps + 1), total_iters=steps)
                return lr_scheduler.SequentialLR(optimizer, [warmup, make_next(optimizer)], milestones=[steps])
            return make

        cases = [
            ({"name": "cosine"}, lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=STEPS)),
            ({"name": "cosine", "warmup_epochs": 0.5},
             warmed_up(5, lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=STEPS - 5))),
            ({"name": "constant", "warmup_epochs": 1.2},
             warmed_up(12, lambda o: lr_scheduler.ConstantLR(o, factor=1))),
            ({"name": "step", "milestones": [1.5, 3], "factor": 0.1},
             lambda o: lr_scheduler.MultiStepLR(o, milestones=[15, 30], gamma=0.1)),
            ({"name": "step", "every_epochs": 0.7, "factor": 0.5},
             lambda o: lr_scheduler.StepLR(o, step_size=7, gamma=0.5)),
            # Muster counts milestones from the start of training, SequentialLR from the end of the
            # warm-up.
            ({"name": "step", "milestones": [2, 4], "factor": 0.3, "warmup_epochs": 1},
             warmed_up(10, lambda o: lr_scheduler.MultiStepLR(o, milestones=[10, 30], gamma=0.3))),
        ]
        for schedule, make_scheduler in cases:
            self.check(
                Problem().ours({"name": "sgd", "learning_rate": 0.1, "momentum": 0.9, "nesterov": True}, schedule),
                run_torch(Problem(), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), make_scheduler),
                f"schedule {schedule}")


if __name__ == "__main__":
    unittest.main()
