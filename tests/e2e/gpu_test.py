"""GPU support of workers: real daemons on a machine with fake GPUs (tests/support/fake_gpus.py)."""

import os
import shutil
import subprocess
import unittest
import urllib.request

from tests.support.cluster import Cluster, binary, shell_spec, wait_until
from tests.support.fake_gpus import OLD_DRIVER, FakeGpus


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def gpu_spec(name, script, ranks=1, device="gpu", **top):
    spec = shell_spec(name, script, ranks=ranks, **top)
    spec["resources"]["device"] = device
    return spec


class GpuCluster:
    """A coordinator, and a worker node-1 with the given number of fake GPUs."""

    def __init__(self, gpus, **worker):
        self.cluster = Cluster()
        self.count, self.worker_options = gpus, worker

    def __enter__(self):
        self.cluster.__enter__()
        try:
            self.gpus = FakeGpus(self.cluster.directory, self.count)
            self.start_worker()
        except BaseException as error:
            self.cluster.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, *error):
        return self.cluster.__exit__(*error)

    def start_worker(self):
        self.gpus.start_worker(self.cluster, **self.worker_options)
        self.cluster.wait_for_nodes(1)

    @property
    def worker(self):
        return self.cluster.workers["node-1"]

    def slots(self):
        return self.cluster.nodes()[0]["slots"]

    def unavailable(self, slot):
        return self.slots()[slot].get("unavailable", "")

    def wait_unavailable(self, slot, text, timeout=10):
        """Waits until the slot's reason contains `text`; with "" until the slot is available."""
        def said():
            reason = self.unavailable(slot)
            return (text in reason) if text else not reason
        wait_until(said, timeout, f"slot {slot} unavailable: {text!r}")

    def metrics(self):
        return fetch(f"http://{self.worker.addresses['http']}/metrics")

    def start(self, name, script):
        """Starts a job with one GPU that runs `script` after release()."""
        go = self.cluster.directory / f"{name}.go"
        job = self.cluster.submit(gpu_spec(name, f"until [ -e {go} ]; do sleep 0.05; done; {script}"))
        self.cluster.wait_for_state(job, "RUNNING")
        return job

    def release(self, name):
        (self.cluster.directory / f"{name}.go").touch()

    def log_of(self, job, rank=0):
        return self.cluster.muster("logs", job, "--rank", rank).stdout

    def why(self, job):
        return self.cluster.muster("why", job).stdout


SHOW = 'echo "local=$LOCAL_RANK devices=$CUDA_VISIBLE_DEVICES."'


class GpuTest(unittest.TestCase):
    def test_offers_subset_of_gpus_by_uuid(self):
        with GpuCluster(4, devices="0,1,3") as gpu:
            self.assertEqual([(s["kind"], s["uuid"], s.get("device", {}).get("index", 0)) for s in gpu.slots()],
                             [("gpu", "GPU-0", 0), ("gpu", "GPU-1", 1), ("gpu", "GPU-3", 3), ("cpu", "", 0)])
            job = gpu.cluster.run(gpu_spec("three", SHOW, ranks=3))["job_id"]
            for rank, uuid in enumerate(["GPU-0", "GPU-1", "GPU-3"]):
                self.assertIn(f"local={rank} devices={uuid}.", gpu.log_of(job, rank))
            job = gpu.cluster.run(gpu_spec("cpu", SHOW, device="cpu"))["job_id"]
            self.assertIn("local=0 devices=.", gpu.log_of(job))
            spec = gpu_spec("both", SHOW, device="auto")
            spec["resources"]["devices_per_rank"] = "all"
            job = gpu.cluster.run(spec)["job_id"]
            self.assertIn("local=0 devices=GPU-0,GPU-1,GPU-3.", gpu.log_of(job))
            text = gpu.cluster.muster("node", "describe", "node-1").stdout
            self.assertRegex(text, r"3 +2 +Fake GPU +80.* +0000:04:00\.0")
            self.assertIn("3 gpu, 1 cpu", gpu.cluster.muster("node", "list", "-o", "wide").stdout)

    def test_rejects_unknown_devices(self):
        with Cluster() as cluster:
            gpus = FakeGpus(cluster.directory, 2)
            def refusal(devices, *flags):
                result = subprocess.run(
                    [binary("worker/muster-worker"), f"--coordinator={cluster.address}", "--name=n",
                     f"--data-dir={cluster.directory / 'n'}", f"--devices={devices}", *(flags or gpus.flags())],
                    env=gpus.environment(os.environ), capture_output=True, text=True, timeout=20, check=False)
                self.assertEqual(result.returncode, 2, result.stderr)
                return result.stderr
            known = "this machine has 0 (GPU-0), 1 (GPU-1)\n"
            self.assertIn("--devices=0,2: there is no GPU 2; " + known, refusal("0,2"))
            self.assertIn("--devices=1,1: GPU 1 is listed twice; " + known, refusal("1,1"))
            self.assertIn("--devices=gpus: 'gpus' is neither", refusal("gpus"))
            self.assertIn("there is no GPU GPU-7; " + known, refusal("GPU-7"))
            self.assertIn("libno-such-nvml.so.1: cannot open", refusal("0", "--nvml-library=libno-such-nvml.so.1"))

    def test_works_without_nvml(self):
        with Cluster() as cluster:
            worker = cluster.start_worker("node-1", 2, ["--nvml-library=libno-such-nvml.so.1"])
            cluster.wait_for_nodes(1)
            self.assertEqual([s["kind"] for s in cluster.nodes()[0]["slots"]], ["cpu", "cpu"])
            self.assertNotIn("nvml", worker.log().lower())
            self.assertNotIn("gpu", worker.log().lower())
            self.assertNotIn("muster_gpu_", fetch(f"http://{worker.addresses['http']}/metrics"))
            job = cluster.submit(gpu_spec("wants-one", "true"))
            text = cluster.muster("why", job).stdout
            self.assertIn("free gpu slot", text)
            self.assertIn("node-1: offers no gpu slots", text)

    def test_old_driver_reports_fewer_metrics(self):
        with GpuCluster(1, library=OLD_DRIVER) as gpu:
            job = gpu.cluster.run(gpu_spec("old", SHOW))["job_id"]
            self.assertIn("devices=GPU-0.", gpu.log_of(job))
            self.assertIn("lacks nvmlDeviceGetPowerUsage", gpu.worker.log())
            self.assertIn("muster_gpu_temperature_celsius", gpu.metrics())
            self.assertNotIn("muster_gpu_power_watts", gpu.metrics())

    def test_metrics(self):
        with GpuCluster(2) as gpu:
            gpu.gpus.gpus[1].update(used=40, util=100, clocks="0x44", ecc=3)
            gpu.gpus.xids.append((1, 31))
            gpu.gpus.save()
            one = '{gpu="1",uuid="GPU-1"'
            expected = {f"muster_gpu_memory_used_bytes{one}}} {40 << 30}", f"muster_gpu_utilization_ratio{one}}} 1",
                        f"muster_gpu_memory_total_bytes{one}}} {80 << 30}", f"muster_gpu_temperature_celsius{one}}} 40",
                        f"muster_gpu_power_watts{one}}} 300", f"muster_gpu_ecc_errors_total{one}}} 3",
                        f'muster_gpu_throttled{one},reason="hw_thermal"}} 1',
                        f'muster_gpu_throttled{one},reason="sw_thermal"}} 0',
                        f'muster_gpu_xid_errors_total{one},xid="31"}} 1', f"muster_gpu_healthy{one}}} 0",
                        'muster_worker_slots{kind="gpu"} 2', 'muster_worker_slots{kind="cpu"} 1'}
            def scraped():
                lines = {" ".join([line.rsplit(" ", 1)[0], f"{float(line.rsplit(' ', 1)[1]):.0f}"])
                         for line in gpu.metrics().splitlines() if line and line[0] != "#" and "NaN" not in line}
                return expected <= lines
            wait_until(scraped, 10, f"{expected} among the metrics")
            if shutil.which("promtool"):
                check = subprocess.run(["promtool", "check", "metrics"], input=gpu.metrics(), text=True,
                                       capture_output=True, check=False)
                self.assertEqual((check.returncode, check.stdout + check.stderr), (0, ""))


class SharedGpuTest(unittest.TestCase):
    def test_ranks_share_gpu_only_if_allowed(self):
        with Cluster() as cluster:
            gpus = FakeGpus(cluster.directory, 1)
            for name in ("a", "b"):
                gpus.start_worker(cluster, name)
            cluster.wait_for_nodes(2)
            spec = gpu_spec("two", 'echo "host=$NCCL_HOSTID devices=$CUDA_VISIBLE_DEVICES."', nodes=2)
            job = cluster.run(spec, check=False)
            self.assertEqual((job["state"], job["reason"]), ("FAILED", "DeviceShared"))
            refusal = ("rank 0 (node a) and rank 1 (node b) would be on the same GPU, GPU 0 (GPU-0) of b, and there "
                       "are not enough other GPUs; set resources.share_device: true to allow it")
            self.assertEqual(job["message"], refusal)
            self.assertIn(f"DeviceShared: {refusal}\n", cluster.muster("why", job["job_id"]).stdout)
            spec["resources"]["share_device"] = True
            job = cluster.run(spec)["job_id"]
            logs = cluster.muster("logs", job).stdout
            for rank in range(2):
                self.assertIn(f"{rank}| host=muster-{job}-1-{rank} devices=GPU-0.", logs)


class HealthTest(unittest.TestCase):
    def test_fatal_xid_disables_gpu_until_worker_restart(self):
        with GpuCluster(2) as gpu:
            job = gpu.start("doomed", "exit 7")
            gpu.gpus.xids += [(0, 31), (0, 79)]
            gpu.gpus.save()
            gpu.wait_unavailable(0, "Xid 79, GPU has fallen off the bus; unusable until the worker is restarted")
            self.assertEqual(gpu.cluster.get(job)["state"], "RUNNING")
            self.assertIn("DeviceUnhealthy", gpu.cluster.muster("describe", job, "--events").stdout)
            gpu.release("doomed")
            done = gpu.cluster.wait(job, check=False)
            self.assertEqual(done["exit_code"], 7)
            self.assertIn("exited with code 7: GPU 0 (GPU-0): Xid 79", done["message"])
            job = gpu.cluster.run(gpu_spec("next", SHOW))["job_id"]
            self.assertIn("devices=GPU-1.", gpu.log_of(job))
            self.assertIn('muster_gpu_healthy{gpu="0",uuid="GPU-0"} 0', gpu.metrics())
            self.assertIn("Xid 79", gpu.cluster.muster("node", "describe", "node-1").stdout)
            self.assertIn("no ranks will be placed on GPU 0 (GPU-0) of node-1: Xid 79", gpu.cluster.coordinator.log())
            wait_until(lambda: "muster_slots_unhealthy 1" in fetch(f"http://{gpu.cluster.http}/metrics"), 5,
                       "the coordinator's metric")
            both = gpu.cluster.submit(gpu_spec("both", "true", ranks=2))
            self.assertIn("GPU 0: Xid 79", gpu.why(both))
            gpu.worker.stop()
            gpu.gpus.xids.clear()
            gpu.gpus.save()
            gpu.start_worker()
            self.assertEqual(gpu.cluster.wait(both)["state"], "SUCCEEDED")

    def test_old_driver_withholds_gpus_from_train_jobs(self):
        with GpuCluster(1, flags=["--required-cuda=13.0"]) as gpu:
            gpu.worker.stop()
            gpu.gpus.more = ["driver 550.54.15", "cuda 12040"]
            gpu.gpus.save()
            gpu.start_worker()
            reason = "driver 550.54.15 supports CUDA 12.4, train jobs need CUDA 13.0: install driver 580.65.06 or newer"
            gpu.wait_unavailable(0, reason)
            self.assertIn(f"no ranks will run on the GPUs: {reason}", gpu.worker.log())
            self.assertIn(reason, gpu.cluster.muster("node", "describe", "node-1").stdout)
            self.assertIn('muster_gpu_healthy{gpu="0",uuid="GPU-0"} 0', gpu.metrics())
            job = gpu.cluster.submit(gpu_spec("waits", "true"))
            self.assertIn(f"0 of 1 gpu slots free; GPU 0: {reason}", gpu.why(job))
            # For a node that runs command jobs only.
            gpu.worker.stop()
            gpu.worker_options["flags"] = ["--required-cuda=none"]
            gpu.start_worker()
            self.assertEqual(gpu.cluster.wait(job)["state"], "SUCCEEDED")

    def test_application_xid_is_reported_only(self):
        with GpuCluster(1) as gpu:
            job = gpu.start("faulty", "exit 3")
            gpu.gpus.xids.append((0, 31))
            gpu.gpus.save()
            wait_until(lambda: 'xid="31"' in gpu.metrics(), 10, "the Xid to be reported")
            gpu.release("faulty")
            done = gpu.cluster.wait(job, check=False)
            self.assertIn("GPU 0 (GPU-0): Xid 31", done["message"])
            self.assertEqual(gpu.unavailable(0), "")
            done = gpu.cluster.run(gpu_spec("other", "exit 4"), check=False)
            self.assertNotIn("Xid", done["message"])

    def test_lost_gpu_may_recover(self):
        with GpuCluster(1) as gpu:
            gpu.gpus.lost.add(0)
            gpu.gpus.save()
            gpu.wait_unavailable(0, "lost: it has fallen off the bus")
            job = gpu.cluster.submit(gpu_spec("patient", "true"))
            self.assertIn("0 of 1 gpu slots free; GPU 0: lost", gpu.why(job))
            gpu.gpus.lost.clear()
            gpu.gpus.save()
            self.assertEqual(gpu.cluster.wait(job)["state"], "SUCCEEDED")

    def test_failure_message_names_lost_gpu(self):
        with GpuCluster(1) as gpu:
            lose = (f"sed 's/^gpu.*/& lost/' {gpu.gpus.path} > {gpu.gpus.path}.lost && "
                    f"mv {gpu.gpus.path}.lost {gpu.gpus.path}; exit 9")
            done = gpu.cluster.run(gpu_spec("unlucky", lose), check=False)
            self.assertEqual(done["exit_code"], 9)
            self.assertIn("GPU 0 (GPU-0): lost: it has fallen off the bus", done["message"])

    def test_recovery_action_disables_gpu(self):
        with GpuCluster(1) as gpu:
            gpu.gpus.gpus[0]["recovery"] = 1
            gpu.gpus.save()
            gpu.wait_unavailable(0, "the driver requests a GPU reset")
            gpu.gpus.gpus[0]["recovery"] = 0
            gpu.gpus.save()
            gpu.wait_unavailable(0, "")

    def test_uncorrected_ecc_errors_disable_gpu(self):
        with GpuCluster(1) as gpu:
            gpu.gpus.gpus[0]["ecc"] = 2
            gpu.gpus.save()
            gpu.wait_unavailable(0, "2 uncorrected ECC errors")
            gpu.gpus.gpus[0]["ecc"] = 0
            gpu.gpus.save()
            gpu.wait_unavailable(0, "")


class MemoryTest(unittest.TestCase):
    def test_slot_is_free_once_memory_is_released(self):
        with GpuCluster(1) as gpu, subprocess.Popen(["sleep", "1000"]) as holder:
            try:
                job = gpu.start("leaves-one", "true")
                gpu.gpus.processes = [(0, holder.pid)]
                gpu.gpus.save()
                gpu.release("leaves-one")
                self.assertEqual(gpu.cluster.wait(job)["state"], "SUCCEEDED")
                self.assertIn("waiting until the memory of its last rank is freed", gpu.unavailable(0))
                self.assertTrue(gpu.slots()[0]["returning"])
                self.assertIn('muster_gpu_healthy{gpu="0",uuid="GPU-0"} 1', gpu.metrics())
                waiting = gpu.cluster.submit(gpu_spec("waits", "true"))
                self.assertIn("waiting until the memory", gpu.why(waiting))
                held = f"memory held by pid {holder.pid} (sleep)"
                gpu.wait_unavailable(0, held, timeout=20)
                self.assertFalse(gpu.slots()[0].get("returning", False))
                self.assertIn('muster_gpu_healthy{gpu="0",uuid="GPU-0"} 0', gpu.metrics())
                self.assertIn(held, gpu.worker.log())
                self.assertEqual(gpu.cluster.get(waiting)["state"], "QUEUED")
                gpu.gpus.processes.clear()
                gpu.gpus.save()
                self.assertEqual(gpu.cluster.wait(waiting)["state"], "SUCCEEDED")
            finally:
                holder.kill()

    def test_late_memory_release_only_delays_restart(self):
        with GpuCluster(1) as gpu:
            path = gpu.gpus.path
            script = f"""
                if [ $MUSTER_GENERATION = 1 ]; then
                  sed 's/used=1 /used=60 /' {path} > {path}.new && mv {path}.new {path}
                  exit 5
                fi
                grep -q 'used=1 ' {path}"""
            job = gpu.cluster.submit(gpu_spec("again", script, restart={"max": 1}))
            gpu.wait_unavailable(0, "memory of its last rank")
            wait_until(lambda: gpu.cluster.get(job)["state"] == "QUEUED", 10, "the restart waits")
            gpu.gpus.save()
            done = gpu.cluster.wait(job)
            self.assertEqual((done["state"], done["restarts"]), ("SUCCEEDED", 1))

    def test_adopted_rank_keeps_its_gpu(self):
        with GpuCluster(2) as gpu:
            job = gpu.cluster.submit(gpu_spec("long", "sleep 1000", failure_timeout="60s"))
            gpu.cluster.wait_for_state(job, "RUNNING")
            gpu.gpus.processes = [(0, os.getpid())]
            gpu.gpus.save()
            gpu.worker.kill()
            gpu.start_worker()
            other = gpu.cluster.run(gpu_spec("other", SHOW))["job_id"]
            self.assertIn("devices=GPU-1.", gpu.log_of(other))
            gpu.cluster.muster("cancel", job, "--force")
            gpu.wait_unavailable(0, "memory")
            gpu.gpus.processes.clear()
            gpu.gpus.save()
            gpu.wait_unavailable(0, "")
            self.assertFalse(gpu.slots()[0].get("job_id"))


if __name__ == "__main__":
    unittest.main()
