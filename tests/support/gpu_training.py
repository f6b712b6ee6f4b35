"""Train jobs for a fake GPU on the host (kernels/cuda/testing/host_plugin.cc), which runs CUDA kernels one thread after
the other. The model needs no cuDNN convolution."""

import shutil
import subprocess

from tests.support.cluster import training_spec
from tests.support.daemon import ROOT, binary

CLASSES = 3


def copied(directory, *files):
    """Creates a folder with copies of built files, given as (name, path)."""
    directory.mkdir()
    for name, path in files:
        shutil.copy(path, directory / name)
    return directory


def make_images(folder):
    """Creates images of three classes; images of class i are brightest in channel i: red, green, blue."""
    subprocess.run(["/usr/bin/python3", str(ROOT / "tests/bench/make_jpeg_folder.py"), str(folder), "--train=48", "--val=24",
                    f"--classes={CLASSES}", "--size=40x30"], check=True, capture_output=True)
    for split in ("train", "val"):
        for tint, name in ((1, "a-red"), (2, "b-green"), (0, "c-blue")):
            (folder / split / f"class-{tint:03d}").rename(folder / split / name)


def rank_on_gpu(directory, library):
    """Creates a folder with muster-rank and the library of a fake GPU, and returns the path of muster-rank."""
    return copied(directory, ("muster-rank", binary("trainer/muster-rank")),
                  ("libmuster-cuda.so", binary(library))) / "muster-rank"


def rank_on_host_gpu(directory):
    """The same with the fake GPU on the host."""
    return rank_on_gpu(directory, "kernels/cuda/testing/libmuster-cuda-on-host.so")


def spec(name, folder, device, **train):
    layers = [{"conv2d": {"out_channels": CLASSES, "kernel": 3, "padding": 1, "groups": CLASSES}}, {"batch_norm2d": {}},
              {"relu": {}}, {"adaptive_avg_pool2d": {}}, {"flatten": {}}]
    return training_spec(name, model={"layers": layers}, dataset={"name": "image_folder", "path": str(folder)},
                         image_size=24, global_batch=12, max_steps=30,
                         optimizer={"name": "sgd", "learning_rate": 0.2, "momentum": 0.9},
                         augment={"random_resized_crop": {}, "flip": True, "random_erasing": {}},
                         resources={"nodes": 1, "ranks_per_node": 1, "device": device}, restart={"max": 0}, **train)
