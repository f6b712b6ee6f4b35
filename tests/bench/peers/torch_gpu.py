"""PyTorch on one GPU, on the jobs that Muster's trainer runs there: counterpart of tests/gpu.

    torch_gpu.py --model resnet50 --image 224 --batch 256 [--dtype bfloat16] [--mode eager|default|reduce-overhead|…]

channels_last, autocast to --dtype (with a gradient scaler for float16), fused SGD, cuDNN benchmark mode. A mode other
than eager is a mode of torch.compile. Images are on the GPU and normalized before the clock starts, so that only
training is measured; the loss is not read back. Prints one JSON line: images/s from the median of --rounds rounds of
steps, and the host time to enqueue a step.
"""

import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

POOL_BATCHES = 4  # prepared batches, used in turn
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def small_cnn(channels, image, classes):
    side = image // 4
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * side * side, 128), nn.ReLU(), nn.Linear(128, classes))


def make_model(args):
    if args.model == "small_cnn":
        return small_cnn(3, args.image, args.classes)
    import torchvision
    return getattr(torchvision.models, args.model)(num_classes=args.classes)


class Trainer:
    """Runs steps on prepared images."""

    def __init__(self, args):
        self.dtype = DTYPES[args.dtype]
        model = make_model(args).to(args.device, memory_format=torch.channels_last)
        self.model = model if args.mode == "eager" else torch.compile(model, mode=args.mode)
        self.optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=5e-4, fused=True)
        self.scaler = torch.amp.GradScaler(args.device, enabled=self.dtype == torch.float16)
        shape = (args.batch, 3, args.image, args.image)
        self.x = [torch.randn(shape, device=args.device).contiguous(memory_format=torch.channels_last)
                  for _ in range(POOL_BATCHES)]
        self.y = [torch.randint(0, args.classes, (args.batch,), device=args.device) for _ in range(POOL_BATCHES)]
        self.device = args.device
        self.steps = 0

    def step(self):
        i = self.steps % POOL_BATCHES
        self.steps += 1
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, dtype=self.dtype, enabled=self.dtype != torch.float32):
            logits = self.model(self.x[i])
        self.loss = F.cross_entropy(logits.float(), self.y[i])
        self.scaler.scale(self.loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def run(self, steps):
        """Seconds per step, and seconds per step that the host spent enqueueing it."""
        synchronize = torch.cuda.synchronize if self.device == "cuda" else lambda: None
        synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        queued = time.perf_counter()
        synchronize()
        return (time.perf_counter() - start) / steps, (queued - start) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50", help="small_cnn or a model of torchvision")
    parser.add_argument("--image", type=int, default=224, help="height and width")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--dtype", choices=list(DTYPES), default="bfloat16")
    parser.add_argument("--mode", default="eager", help="eager, or a mode of torch.compile")
    parser.add_argument("--steps", type=int, default=20, help="steps per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    trainer = Trainer(args)
    start = time.perf_counter()
    trainer.run(args.warmup)
    warmup = time.perf_counter() - start
    rounds = [trainer.run(args.steps) for _ in range(args.rounds)]
    seconds = statistics.median(step for step, _ in rounds)
    print(json.dumps({
        "torch": torch.__version__, "model": args.model, "image": args.image, "batch": args.batch,
        "dtype": args.dtype, "mode": args.mode, "images_per_second": args.batch / seconds,
        "median_step_seconds": seconds, "host_seconds": statistics.median(host for _, host in rounds),
        "warmup_seconds": warmup,
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if args.device == "cuda" else None,
        "final_loss": trainer.loss.item()}), flush=True)


if __name__ == "__main__":
    main()
