"""Runs the rendezvous benchmark with few nodes and checks that its figures are plausible."""

import json
import subprocess
import unittest

from tests.support.daemon import binary


def run_bench(*flags):
    argv = [binary("tests/bench/rendezvous_bench"), "--nodes=8", "--ranks-per-node=2", "--json", *flags]
    result = subprocess.run(argv, text=True, capture_output=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


class RendezvousBenchTest(unittest.TestCase):

    def test_phases_add_up(self):
        result = run_bench("--rounds=2", "--barriers=20", "--idle-seconds=0.5")
        for phase in ("register_ms", "launch_ms", "rendezvous_ms", "unique_id_ms", "running_ms", "barrier_p50_ms", "nccl_ids_p50_ms",
                      "start_cpu_us_per_node", "idle_cpu_percent"):
            self.assertEqual(len(result["rounds"][phase]), 2)
            self.assertTrue(all(value > 0 for value in result["rounds"][phase]), (phase, result["rounds"][phase]))
        for i, total in enumerate(result["rounds"]["total_ms"]):
            parts = sum(result["rounds"][p][i] for p in ("register_ms", "launch_ms", "rendezvous_ms", "unique_id_ms"))
            self.assertAlmostEqual(parts, total, places=3)

    def test_shared_connections_and_unbatched_reports(self):
        result = run_bench("--rounds=1", "--barriers=5", "--idle-seconds=0.1", "--connections=2", "--unfolded")
        self.assertEqual(result["connections"], 2)
        self.assertGreater(result["median"]["total_ms"], 0)

    def test_names_silent_rank(self):
        # The second is silent at a barrier.
        result = run_bench("--rounds=0", "--silent=2")
        self.assertEqual([silent["right"] for silent in result["silent"]], [True, True], result["silent"])


if __name__ == "__main__":
    unittest.main()
