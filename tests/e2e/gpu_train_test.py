"""Train jobs on fake GPUs with real daemons (tests/support/fake_gpus.py, gpu_training.py)."""

import re
import shutil
import subprocess
import unittest

from tests.support.cluster import Cluster, binary
from tests.support.fake_gpus import FakeGpus
from tests.support.gpu_training import copied, make_images, rank_on_host_gpu, spec

class GpuTrainTest(unittest.TestCase):
    def start(self, cluster, rank_binary):
        gpus = FakeGpus(cluster.directory, 2)
        flags = [*gpus.flags(), f"--rank-binary={rank_binary}"]
        cluster.start_worker("node-1", 2, flags, env=gpus.environment(cluster.environment()))
        cluster.wait_for_nodes(1)

    def test_rank_computes_on_assigned_gpu(self):
        with Cluster() as cluster:
            self.start(cluster, rank_on_host_gpu(cluster.directory / "programs"))
            folder = cluster.directory / "images"
            make_images(folder)
            summaries = {}
            for device in ("cpu", "gpu", "auto"):
                job = cluster.run(spec(f"on-{device}", folder, device), "--losses")
                self.assertEqual(job["state"], "SUCCEEDED")
                summaries[device] = job["summary"]
                on_gpu = device != "cpu"
                self.assertEqual(job["summary"]["device"], "cuda:0 host" if on_gpu else "cpu")
                log = cluster.muster("logs", job["job_id"]).stdout
                self.assertEqual("computes on cuda:0 host" in log, on_gpu, log)
            cpu = summaries["cpu"]["losses"]
            self.assertEqual(len(cpu), 30)
            self.assertLess(cpu[-1], 0.8 * cpu[0])
            # The same samples, crops and resizing; pixel values may round differently.
            for step, (one, other) in enumerate(zip(cpu, summaries["gpu"]["losses"])):
                self.assertAlmostEqual(one, other, delta=1e-3 * one, msg=f"step {step}")
            self.assertEqual(summaries["auto"]["losses"], summaries["gpu"]["losses"])

            # Two ranks with one GPU each; the processes exchange gradients through shared memory.
            both = dict(spec("two-ranks", folder, "gpu"), backend="shm")
            both["resources"]["ranks_per_node"] = 2
            job = cluster.run(both, "--losses")
            self.assertLess(job["summary"]["losses"][-1], 0.8 * cpu[0])

            # Two stages with one GPU each; without NCCL, activations pass through host memory.
            stages = dict(spec("two-stages", folder, "gpu"), backend="shm")
            stages["resources"]["ranks_per_node"] = 2
            stages["train"]["strategy"] = {"name": "pipeline", "pipeline": {"stages": 2, "micro_batches": 1}}
            job = cluster.run(stages, "--losses")
            self.assertEqual([use["device"] for use in job["summary"]["devices"]], ["cuda:0 host"] * 2)
            for step, (one, other) in enumerate(zip(cpu, job["summary"]["losses"])):
                self.assertAlmostEqual(one, other, delta=2e-3 * one, msg=f"step {step}")

    def test_rejects_nodes_with_different_drivers(self):
        with Cluster() as cluster:
            programs = copied(cluster.directory / "programs", ("muster-rank", binary("trainer/muster-rank")),
                              ("libmuster-cuda.so", binary("kernels/cuda/testing/libmuster-cuda-on-host.so")))
            libraries = copied(cluster.directory / "nvidia",
                               ("libnccl.so.2", binary("collectives/nccl/testing/libfake_nccl.so")))
            for name, driver, variables in (("a", "580.65.06", {"NCCL_ALGO": "Ring"}), ("b", "570.86.10", {})):
                machine = cluster.directory / f"machine-{name}"
                machine.mkdir()
                gpus = FakeGpus(machine, 1)
                gpus.gpus[0]["uuid"] = f"GPU-{name}"
                gpus.more = [f"driver {driver}"]
                gpus.save()
                cluster.start_worker(name, 1, [*gpus.flags(), f"--rank-binary={programs}/muster-rank"],
                                     env=dict(gpus.environment(cluster.environment()), **variables,
                                              MUSTER_CUDA_LIBRARY_PATH=str(libraries)))
            cluster.wait_for_nodes(2)
            folder = cluster.directory / "images"
            make_images(folder)
            two = spec("two-drivers", folder, "gpu")
            two["resources"]["nodes"] = 2
            job = cluster.run(two, check=False)
            self.assertEqual((job["state"], job["reason"]), ("FAILED", "FingerprintMismatch"))
            lines = ["node a (rank 0): driver 580.65.06; NCCL variables NCCL_ALGO=Ring",
                     "node b (rank 1): driver 570.86.10; no NCCL variables"]
            self.assertEqual(job["message"].splitlines(), lines)
            self.assertIn("FingerprintMismatch: " + "\n".join(lines) + "\n",
                          cluster.muster("why", job["job_id"]).stdout)

    def test_unusable_gpu_fails_job_with_message(self):
        with Cluster() as cluster:
            programs = copied(cluster.directory / "programs", ("muster-rank", binary("trainer/muster-rank")))
            self.start(cluster, programs / "muster-rank")
            folder = cluster.directory / "images"
            make_images(folder)
            for device in ("gpu", "auto"):
                job = cluster.run(spec(f"without-{device}", folder, device), check=False)
                self.assertEqual((job["state"], int(job["exit_code"])), ("FAILED", 71))
                self.assertIn(f"node node-1: CUDA: no {programs}/libmuster-cuda.so, no ", job["first_failure"]["message"])
            job = cluster.run(spec("on-cpu", folder, "cpu"))
            self.assertEqual(job["summary"]["device"], "cpu")

    def test_explain_plan(self):
        with Cluster() as cluster:
            programs = copied(cluster.directory / "programs", ("muster-rank", binary("trainer/muster-rank")))
            folder = cluster.directory / "images"
            make_images(folder)
            def explain(device, *flags):
                path = cluster.write_spec(spec("plan", folder, device))
                return subprocess.run([binary("cli/muster"), "spec", "explain-plan", path, f"--rank-binary={programs}/"
                                       "muster-rank", *flags], capture_output=True, text=True, check=False)
            refused = explain("auto", "--device", "cuda")
            self.assertEqual((refused.returncode, refused.stdout), (1, ""))
            self.assertEqual(refused.stderr.count("\n"), 1, refused.stderr)
            self.assertIn(f"CUDA: no {programs}/libmuster-cuda.so", refused.stderr)
            self.assertNotIn("cuda:0", explain("gpu").stdout)
            shutil.copy(binary("kernels/cuda/testing/libmuster-cuda-on-host.so"), programs / "libmuster-cuda.so")
            for device, flags in (("auto", ("--device", "cuda", "--time")), ("gpu", ())):
                answer = explain(device, *flags)
                self.assertEqual(answer.returncode, 0, answer.stderr)
                self.assertIn(", on cuda:0 host; activations take ", answer.stdout)
            self.assertNotIn("cuda:0", explain("gpu", "--device", "cpu").stdout)
            self.assertNotIn("cuda:0", explain("auto").stdout)

    def test_finds_library_of_bundle(self):
        """The library is found in PREFIX/lib, whether the system's or a bundled loader starts PREFIX/libexec/muster-rank."""
        with Cluster() as cluster:
            prefix = cluster.directory / "prefix"
            prefix.mkdir()
            copied(prefix / "lib", ("libmuster-cuda.so", binary("kernels/cuda/testing/libmuster-cuda-on-host.so")))
            rank = copied(prefix / "libexec", ("muster-rank", binary("trainer/muster-rank"))) / "muster-rank"
            folder = cluster.directory / "images"
            make_images(folder)
            path = cluster.write_spec(spec("plan", folder, "auto"))
            interpreter = re.search(r"(/lib\S*/ld-linux\S*)", subprocess.check_output(["ldd", rank], text=True)).group(1)
            for command in (str(rank), f"{interpreter} {rank}"):
                launcher = cluster.directory / "launcher"
                launcher.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
                launcher.chmod(0o755)
                answer = subprocess.run([binary("cli/muster"), "spec", "explain-plan", path, "--device", "cuda",
                                         f"--rank-binary={launcher}"], capture_output=True, text=True, check=False)
                self.assertEqual(answer.returncode, 0, answer.stderr)
                self.assertIn(", on cuda:0 host; ", answer.stdout)


if __name__ == "__main__":
    unittest.main()
