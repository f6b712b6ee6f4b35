#!/usr/bin/env python3
"""Training throughput of models in float32 and bfloat16, Muster against PyTorch DDP, in one run.

    tests/bench/train_bench [--model NAME]… [--precision O0|O2]… [--rounds 5] [--quick] [--output PREFIX]

2 ranks x 1 thread on Fashion-MNIST, resized to the model's size. Muster runs with a real coordinator and worker,
including its loader; PyTorch uses images prepared before the clock starts. Each round runs every contestant once, in
turn, so that other load on the machine affects all of them; the figures are medians over the rounds. PyTorch runs in
four forms, default or channels_last, eager or compiled, and the best counts; --quick runs only the form that usually
wins. O2 is bfloat16, for PyTorch autocast to bfloat16.

"of peak" is the nominal work (3 x 2 x the multiplications of forward's convolutions and linear layers, as counted by
`muster spec explain-plan`) relative to the rate that kernels/bench/peak_bench measures with the same number of threads
and precision. "exposed" is the wait for gradients after backward; "outside kernels" is the rest of a step without its
kernels and that wait. Memory is a rank's largest resident size.

--output writes PREFIX.md and PREFIX.json; runs in an existing PREFIX.json with the same settings are not repeated.
"""

import argparse
import dataclasses
import gzip
import json
import os
import pathlib
import platform
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.interpreters import with_torch  # noqa: E402
from tests.bench.results_file import ResultsFile, markdown_table  # noqa: E402
from tests.support.cluster import Cluster, training_spec  # noqa: E402
from tests.support.daemon import binary  # noqa: E402

DATA = "/usr/share/datasets/fashion-mnist"
RANKS, THREADS = 2, 1
WARMUP_STEPS = 5  # excluded from Muster's medians
TEST_IMAGES = 64  # small, because the evaluation at the end of a run is not measured


@dataclasses.dataclass
class Model:
    """A job: image size, global batch, and number of measured steps."""

    image: int
    batch: int
    steps: int
    peer_steps: int


MODELS = {
    "small_cnn": Model(28, 128, 300, 100),
    "resnet18": Model(32, 128, 40, 25),
    "mobilenet_v2": Model(112, 64, 20, 12),
    "resnet50": Model(112, 32, 8, 6),
}
PRECISIONS = {"O0": "float32", "O2": "bfloat16"}
FORMS = {
    "default": [],
    "channels_last": ["--channels-last"],
    "compile": ["--compile"],
    "channels_last compile": ["--channels-last", "--compile"],
}
USUAL_WINNERS = {
    ("small_cnn", "O0"): "channels_last compile",
    ("small_cnn", "O2"): "channels_last compile",
    ("resnet50", "O0"): "channels_last compile",
}
USUAL_WINNER = "channels_last"  # for models not listed above


# ---- running

def short_dataset(folder, data=DATA, images=TEST_IMAGES):
    """Writes Fashion-MNIST into `folder` with only the first `images` of the test set."""
    for name, header, size in (("t10k-images-idx3-ubyte", 16, 28 * 28), ("t10k-labels-idx1-ubyte", 8, 1)):
        with gzip.open(f"{data}/{name}.gz") as source:
            content = bytearray(source.read(header + images * size))
        content[4:8] = struct.pack(">I", images)
        (pathlib.Path(folder) / f"{name}.gz").write_bytes(gzip.compress(bytes(content)))
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        os.symlink(f"{data}/{name}.gz", f"{folder}/{name}.gz")


def muster_spec(name, precision, model, steps, data):
    """The job that Muster runs, with `steps` measured steps."""
    words = {} if precision == "O0" else {"precision": precision}
    return training_spec(f"bench-{name}-{precision}".replace("_", "-").lower(), model={"name": name},
                         dataset={"name": "fashion_mnist", "path": str(data)}, image_size=model.image,
                         global_batch=model.batch, max_steps=WARMUP_STEPS + steps,
                         optimizer={"name": "sgd", "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 5e-4},
                         checkpoint={"keep": 0},
                         resources={"nodes": 1, "ranks_per_node": RANKS, "threads_per_rank": THREADS}, **words)


def run_muster(cluster, name, precision, model, steps, data):
    summary = cluster.run(muster_spec(name, precision, model, steps, data), timeout=3600)["summary"]
    return {
        "images_per_second": float(summary["images_per_second"]),
        "step_seconds": float(summary["median_step_seconds"]),
        "kernel_seconds": float(summary["kernel_seconds"]) or None,
        "exposed_seconds": float(summary["exposed_communication_seconds"]),
        "data_wait_seconds": float(summary["data_wait_seconds"]),
        "memory_bytes": int(summary["peak_memory_bytes"]),
    }


def run_peer(python, form, name, precision, model, steps):
    command = [python, str(ROOT / "tests/bench/peers/torch_ddp.py"), "--model", name, "--image", str(model.image),
               "--batch", str(model.batch), "--ranks", str(RANKS), "--threads", str(THREADS), "--steps", str(steps),
               "--warmup", str(min(10, steps)), "--data", DATA, *FORMS[form]]
    result = subprocess.run(command + (["--amp"] if precision == "O2" else []), text=True, capture_output=True,
                            check=False)
    if result.returncode != 0:
        print(f"{' '.join(command)} failed:\n{result.stderr[-2000:]}", file=sys.stderr)
        return None
    line = json.loads(result.stdout.strip().splitlines()[-1])
    return {"images_per_second": line["images_per_second"], "step_seconds": line["median_step_seconds"],
            "memory_bytes": line["peak_memory_bytes"]}


def run_peak():
    result = subprocess.run([binary("kernels/bench/peak_bench"), "--json", f"--threads={RANKS * THREADS}"], text=True,
                            capture_output=True, check=True)
    return json.loads(result.stdout)


def training_flops(spec):
    """Training FLOPs per image: two per multiplication of convolutions and linear layers in forward, and the same again
    for the gradients of the weights and for those of the activations."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({**spec, "train": {k: v for k, v in spec["train"].items() if k != "precision"}}, file)
        file.flush()
        result = subprocess.run([binary("cli/muster"), "spec", "explain-plan", file.name, "-o", "json"], text=True,
                                capture_output=True, check=True)
    report = json.loads(result.stdout)
    forward = sum(int(operation["forward_flops"]) for operation in report["operations"]
                  if operation["kind"].startswith(("conv2d", "linear")))
    return 3 * forward // int(report["rows"])


def forms_of(name, precision, quick):
    return [USUAL_WINNERS.get((name, precision), USUAL_WINNER)] if quick else list(FORMS)


def measure(args, results, cluster, pythons, data):
    for i in range(args.rounds):
        if len(results.of("peak")) <= i:
            results.add("peak", run_peak())
        for name in args.model:
            for precision in args.precision:
                measure_round(args, results, cluster, pythons, data, i, name, precision)


def measure_round(args, results, cluster, pythons, data, i, name, precision):
    """Measures the contestants of round `i` for one model and precision whose results are missing."""
    model = MODELS[name]
    contestants = {"muster": lambda: run_muster(cluster, name, precision, model, args.steps or model.steps, data)}
    for python, version in pythons.items():
        for form in forms_of(name, precision, args.quick):
            contestants[f"PyTorch {version} {form}"] = (
                lambda python=python, form=form: run_peer(python, form, name, precision, model,
                                                          args.steps or model.peer_steps))
    for contestant, run in contestants.items():
        key = f"{name}/{precision}/{contestant}"
        # A form that has failed is not run again.
        if len(results.of(key)) > i or None in results.of(key):
            continue
        results.add(key, run())
        last = results.of(key)[-1]
        rate = f"{last['images_per_second']:9.1f} images/s" if last else "failed"
        print(f"round {i + 1}  {key:60} {rate}", file=sys.stderr, flush=True)


# ---- figures

def medians(runs, field):
    values = [run[field] for run in runs if run is not None and run.get(field) is not None]
    return statistics.median(values) if values else None


def peak_flops(peaks, precision):
    """FLOP/s of all threads together; a CPU without bfloat16 instructions computes it in float32."""
    best = {p: max(peak["all_threads"][f"{p}_gflops"] for peak in peaks) for p in ("float32", "bfloat16")}
    return 1e9 * (best[PRECISIONS[precision]] or best["float32"])


def best_peer(results, name, precision):
    """(contestant, its runs) with the best median rate; (None, []) without one."""
    prefix = f"{name}/{precision}/PyTorch"
    peers = {key: runs for key, runs in results.items() if key.startswith(prefix)}
    rates = {key: rate for key, runs in peers.items() if (rate := medians(runs, "images_per_second"))}
    if not rates:
        return None, []
    best = max(rates, key=rates.get)
    return best.split("/", 2)[2], peers[best]


def row_of(results, flops, name, precision):
    """The figures of one table row, by name; None where not measured."""
    ours = results[f"{name}/{precision}/muster"]
    peer, peer_runs = best_peer(results, name, precision)
    step = medians(ours, "step_seconds")
    rate, peer_rate = medians(ours, "images_per_second"), medians(peer_runs, "images_per_second")
    peak = peak_flops(results["peak"], precision)

    def outside(run):
        return (run["step_seconds"] - run["kernel_seconds"] - run["exposed_seconds"]) / run["step_seconds"]

    shares = [outside(run) for run in ours if run["kernel_seconds"] is not None]
    return {
        "model": name, "image": MODELS[name].image, "batch": MODELS[name].batch, "precision": precision,
        "images_per_second": rate, "peer_images_per_second": peer_rate, "peer": peer,
        "ratio": rate / peer_rate if peer_rate else None,
        "of_peak": rate * flops[name] / peak, "peer_of_peak": peer_rate * flops[name] / peak if peer_rate else None,
        "step_seconds": step,
        "outside_kernels": statistics.median(shares) if shares else None,
        "exposed": medians(ours, "exposed_seconds") / step,
        "memory_bytes": medians(ours, "memory_bytes"), "peer_memory_bytes": medians(peer_runs, "memory_bytes"),
    }


def table(rows):
    def text(value, form):
        return "" if value is None else form.format(value)

    header = ["model", "precision", "Muster images/s", "PyTorch images/s", "its best form", "Muster / PyTorch", "of peak",
              "PyTorch's", "outside kernels", "exposed", "memory MB", "PyTorch's"]
    lines = []
    for row in rows:
        megabytes = [None if row[k] is None else row[k] / 1e6 for k in ("memory_bytes", "peer_memory_bytes")]
        lines.append([
            f"{row['model']} {row['image']}x{row['image']}, batch {row['batch']}",
            f"{row['precision']} {PRECISIONS[row['precision']]}",
            text(row["images_per_second"], "{:.0f}" if row["images_per_second"] >= 100 else "{:.1f}"),
            text(row["peer_images_per_second"], "{:.0f}" if (row["peer_images_per_second"] or 0) >= 100 else "{:.1f}"),
            row["peer"] or "", text(row["ratio"], "{:.2f}"), text(row["of_peak"], "{:.1%}"),
            text(row["peer_of_peak"], "{:.1%}"), text(row["outside_kernels"], "{:.1%}"),
            text(row["exposed"], "{:.1%}"), text(megabytes[0], "{:.0f}"), text(megabytes[1], "{:.0f}")])
    return markdown_table(header, lines)


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=MODELS, help="may be repeated; default: all")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="may be repeated; default: both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="measured steps per run; default: by model")
    parser.add_argument("--python", action="append", default=[],
                        help="interpreter with PyTorch, may be repeated; default: .venv and the system's")
    parser.add_argument("--quick", action="store_true", help="run PyTorch only in the form that usually wins")
    parser.add_argument("--no-peer", action="store_true", help="run Muster only")
    parser.add_argument("--output", help="prefix of the .md and .json files to write")
    args = parser.parse_args()
    args.model, args.precision = args.model or list(MODELS), args.precision or list(PRECISIONS)
    pythons = {} if args.no_peer else with_torch(args.python)

    settings = {"processor": processor(), "ranks": RANKS, "threads": THREADS, "steps": args.steps}
    results = ResultsFile(args.output and f"{args.output}.json", settings)
    with tempfile.TemporaryDirectory(prefix="muster-bench.") as data, Cluster(nodes=1, slots=RANKS) as cluster:
        short_dataset(data)
        measure(args, results, cluster, pythons, data)
        flops = {name: training_flops(muster_spec(name, "O0", MODELS[name], 1, data)) for name in args.model}
    rows = [row_of(results.data["results"], flops, name, precision)
            for name in args.model for precision in args.precision]
    results.save(training_flops_per_image=flops, table=rows)
    peaks = {p: max(peak["all_threads"][f"{p}_gflops"] for peak in results.of("peak")) for p in ("float32", "bfloat16")}
    text = (f"{settings['processor']}, {RANKS} ranks x {THREADS} thread, medians of {args.rounds} rounds; measured peak of "
            f"{RANKS * THREADS} threads {peaks['float32']:.0f} GFLOP/s in float32, {peaks['bfloat16']:.0f} in bfloat16\n\n"
            + table(rows))
    print(text, end="")
    if args.output:
        pathlib.Path(f"{args.output}.md").write_text(text)


if __name__ == "__main__":
    main()
