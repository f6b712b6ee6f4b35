"""Runs the all-reduce benchmark with small sizes and checks that its figures are consistent."""

import json
import subprocess
import unittest

from tests.support.daemon import binary


def run_bench(*flags):
    argv = [binary("tests/bench/allreduce_bench"), "--min-bytes=1KiB", "--max-bytes=2KiB", "--rounds=1", "--json", *flags]
    result = subprocess.run(argv, text=True, capture_output=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


class AllReduceBenchTest(unittest.TestCase):

    def check(self, result, ranks, who):
        figures = result["figures"]
        self.assertEqual({figure["who"] for figure in figures}, set(who))
        self.assertEqual(len(figures), 2 * len(who))
        self.assertEqual({figure["bytes"] for figure in figures}, {1024, 2048})
        for figure in figures:
            self.assertGreater(figure["time_us"], 0)
            self.assertAlmostEqual(figure["algbw_gb_per_s"], figure["bytes"] / figure["time_us"] / 1e3)
            self.assertAlmostEqual(figure["busbw_gb_per_s"], figure["algbw_gb_per_s"] * 2 * (ranks - 1) / ranks)

    def test_cpu_backends_on_one_node(self):
        self.check(run_bench("--ranks=2"), 2, ["gloo's own", "our gloo", "shm, heap", "shm"])

    def test_cpu_backends_on_two_nodes(self):
        self.check(run_bench("--ranks=4", "--nodes=2"), 4, ["gloo's own", "our gloo", "hierarchical"])

    def test_nccl_with_and_without_hierarchy(self):
        fake_nccl = f"--fake-nccl={binary('collectives/nccl/testing/libfake_nccl.so')}"
        self.check(run_bench("--backend=nccl", fake_nccl, "--ranks=2"), 2, ["nccl"])
        self.check(run_bench("--backend=nccl", fake_nccl, "--ranks=4", "--nodes=2"), 4, ["nccl", "hierarchical"])

    def test_rejects_ranks_not_divisible_by_nodes(self):
        argv = [binary("tests/bench/allreduce_bench"), "--ranks=3", "--nodes=2"]
        result = subprocess.run(argv, text=True, capture_output=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("--ranks must be a multiple of --nodes", result.stderr)


if __name__ == "__main__":
    unittest.main()
