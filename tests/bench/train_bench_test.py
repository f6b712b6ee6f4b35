"""The training benchmarks: figures computed from given results, and small runs of Muster."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tests.bench import accuracy_bench, precision_table, train_bench
from tests.bench.event_file import read_scalars
from tests.bench.results_file import ResultsFile
from tests.support.daemon import ROOT, binary

PEAK = {"all_threads": {"float32_gflops": 100.0, "bfloat16_gflops": 200.0}}


def muster_run(rate, kernel_seconds):
    return {"images_per_second": rate, "step_seconds": 1.0, "kernel_seconds": kernel_seconds, "exposed_seconds": 0.1,
            "data_wait_seconds": 0.0, "memory_bytes": 100e6}


def peer_run(rate):
    return {"images_per_second": rate, "step_seconds": 2.0, "memory_bytes": 300e6}


def run_script(name, *flags):
    command = [sys.executable, "-B", str(ROOT / "tests/bench" / name), *flags]
    result = subprocess.run(command, text=True, capture_output=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


class TrainBenchTest(unittest.TestCase):
    def rows(self, results, precision="O0"):
        return train_bench.row_of({"peak": [PEAK], **results}, {"resnet18": 1e9}, "resnet18", precision)

    def test_uses_best_peer_form(self):
        row = self.rows({"resnet18/O0/muster": [muster_run(30, 0.8), muster_run(10, 0.7), muster_run(20, 0.6)],
                         "resnet18/O0/PyTorch 2 default": [peer_run(4), peer_run(40), peer_run(5)],
                         "resnet18/O0/PyTorch 2 compile": [peer_run(10), peer_run(8), peer_run(9)],
                         "resnet18/O0/PyTorch 2 channels_last": [None],
                         "resnet18/O2/PyTorch 2 default": [peer_run(1000)]})
        self.assertEqual((row["images_per_second"], row["peer_images_per_second"], row["peer"]),
                         (20, 9, "PyTorch 2 compile"))
        self.assertAlmostEqual(row["ratio"], 20 / 9)
        self.assertAlmostEqual(row["of_peak"], 0.2)
        self.assertAlmostEqual(row["peer_of_peak"], 0.09)
        self.assertAlmostEqual(row["outside_kernels"], 0.2)
        self.assertAlmostEqual(row["exposed"], 0.1)

    def test_bfloat16_peak_depends_on_cpu_support(self):
        runs = {"resnet18/O2/muster": [muster_run(20, 0.8)]}
        self.assertAlmostEqual(self.rows(runs, "O2")["of_peak"], 0.1)
        none = {"all_threads": {"float32_gflops": 100.0, "bfloat16_gflops": 0.0}}
        self.assertAlmostEqual(self.rows({**runs, "peak": [none]}, "O2")["of_peak"], 0.2)

    def test_leaves_unmeasured_values_empty(self):
        row = self.rows({"resnet18/O0/muster": [muster_run(20, None)]})
        self.assertEqual((row["ratio"], row["peer"], row["outside_kernels"]), (None, None, None))
        line = train_bench.table([row]).splitlines()[2]
        self.assertEqual([cell.strip() for cell in line.strip("|").split("|")],
                         ["resnet18 32x32, batch 128", "O0 float32", "20.0", "", "", "", "20.0%", "", "", "10.0%", "100", ""])

    def test_resumes_from_results_file(self):
        with tempfile.TemporaryDirectory() as folder:
            flags = ["--no-peer", "--model=small_cnn", "--precision=O0", "--steps=10", f"--output={folder}/out"]
            run_script("train_bench.py", "--rounds=1", *flags)
            first = json.loads(pathlib.Path(f"{folder}/out.json").read_text())
            text = run_script("train_bench.py", "--rounds=2", *flags)
            second = json.loads(pathlib.Path(f"{folder}/out.json").read_text())
            self.assertEqual(pathlib.Path(f"{folder}/out.md").read_text(), text)
        key = "small_cnn/O0/muster"
        self.assertEqual(len(first["results"][key]), 1)
        self.assertEqual(len(second["results"][key]), 2)
        self.assertEqual(second["results"][key][0], first["results"][key][0])
        row, = second["table"]
        self.assertTrue(0 < row["of_peak"] < 1 and row["memory_bytes"] > 1e6, row)
        # 3x3 convolutions from 1 to 32 and from 32 to 64 channels, two linear layers; two FLOPs per
        # product, three times for training.
        products = 28 * 28 * 9 * 32 + 14 * 14 * 9 * 32 * 64 + 3136 * 128 + 128 * 10
        self.assertEqual(second["training_flops_per_image"], {"small_cnn": 6 * products})

    def test_peak_bench_reports_figures(self):
        out = subprocess.run([binary("kernels/bench/peak_bench"), "--json", "--rounds=1", "--seconds=0.002", "--threads=2"],
                             text=True, capture_output=True, check=True).stdout
        figures = json.loads(out)
        for threads in ("one_thread", "all_threads"):
            self.assertGreater(figures[threads]["copy_gigabytes_per_second"], 0)
            for precision in ("float32", "bfloat16"):
                has_it = figures[f"{precision}_instruction"] != ""
                self.assertEqual(figures[threads][f"{precision}_gflops"] > 0, has_it)


class ResultsFileTest(unittest.TestCase):
    def test_keeps_results_and_rejects_other_settings(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/results.json"
            results = ResultsFile(path, {"steps": 3})
            results.add("a", {"x": 1})
            results.add("a", None)
            self.assertEqual(ResultsFile(path, {"steps": 3}).of("a"), [{"x": 1}, None])
            self.assertEqual(ResultsFile(path, {"steps": 3}).of("b"), [])
            with self.assertRaises(SystemExit):
                ResultsFile(path, {"steps": 4})


class AccuracyBenchTest(unittest.TestCase):
    SCALARS = {"train/loss": [(10, 1.0, 105.0), (20, 0.9, 120.0), (25, 0.8, 130.0)],
               "test/accuracy": [(10, 0.90, 108.0), (20, 0.93, 124.0), (25, 0.95, 135.0)]}

    def test_time_to_target_with_and_without_evaluations(self):
        reached = accuracy_bench.time_to_target(self.SCALARS, first_step_time=101.0, step_seconds=0.5, target=0.93)
        self.assertEqual(reached, {"epoch": 2, "seconds": 23.5, "training_seconds": 23.5 - 3 - 4})
        self.assertIsNone(accuracy_bench.time_to_target(self.SCALARS, 101.0, 0.5, 0.96))

    def test_ratio_uses_better_peer_form(self):
        def run(seconds):
            reached = seconds and {"epoch": 3, "seconds": seconds, "training_seconds": seconds - 1}
            return {"test_accuracy": 0.9, "accuracies": [], "images_per_second": 1, "reached": reached}

        results = {"O0/muster": [run(20), run(22), run(None)], "O0/PyTorch eager": [run(50)],
                   "O0/PyTorch compile": [run(44), run(40), run(None)], "O2/muster": [run(1)]}
        rows = accuracy_bench.rows_of(results, "O0")
        self.assertEqual([row["seconds"] for row in rows], [21, 50, 42])
        self.assertAlmostEqual(accuracy_bench.ratio(rows, "seconds"), 0.5)
        text = accuracy_bench.report(results, ["O0"], 0.93)
        self.assertIn("0.50 of the time of PyTorch's better form", text)
        self.assertIn("| O0 | muster | 2 of 3 | 3 | 21.0 | 20.0 | 0.9000 |", text)

    def test_converts_recipe_to_peer_flags(self):
        recipe = accuracy_bench.read_recipe(ROOT / "deploy/examples/small_cnn_augmented.yaml", epochs=3)
        flags = accuracy_bench.peer_flags(recipe["train"])
        pairs = dict(zip(flags, flags[1:]))
        self.assertEqual({flag: float(pairs[flag]) for flag in ("--epochs", "--batch", "--learning-rate", "--ema-decay",
                                                                "--crop-padding", "--dropout")},
                         {"--epochs": 3, "--batch": 256, "--learning-rate": 0.1, "--ema-decay": 0.995,
                          "--crop-padding": 1, "--dropout": 0.2})
        self.assertIn("--nesterov", flags)
        recipe["train"]["augment"]["random_erasing"] = {}
        with self.assertRaises(SystemExit):
            accuracy_bench.peer_flags(recipe["train"])

    def test_reads_event_files_with_timestamps(self):
        with tempfile.TemporaryDirectory() as folder:
            writer = subprocess.Popen([binary("trainer/tensorboard/tensorboard_writer"), folder, "1", "3"],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.assertEqual(writer.stdout.readline(), "written\n")
            writer.communicate()
            scalars = read_scalars(folder)
            path, = pathlib.Path(folder).iterdir()
            path.write_bytes(path.read_bytes()[:-7])
            self.assertEqual([step for step, _, _ in read_scalars(folder)["train/loss"]], [1, 2])
        self.assertEqual([step for step, _, _ in scalars["train/loss"]], [1, 2, 3])
        for step, value, time in scalars["train/loss"]:
            self.assertAlmostEqual(value, 1 / step + 0.001, places=6)
            self.assertGreater(time, 1.7e9)


class PrecisionTableTest(unittest.TestCase):
    def test_mean_spread_and_difference(self):
        def run(accuracy):
            return {"test_accuracy": accuracy, "images_per_second": 10, "skipped_steps": 1}

        text = precision_table.report({"O0 float32": [run(0.93), run(0.94)], "O2 float16": [run(0.925)]})
        self.assertIn("| O0 float32 | 2 | 93.50 % | 93.00 to 94.00 | +0.00 | 2 | 10 |", text)
        self.assertIn("| O2 float16 | 1 | 92.50 % |  | -1.00 | 1 | 10 |", text)


if __name__ == "__main__":
    unittest.main()
