"""A machine with fake GPUs for tests: worker/gpu/testing/fake_nvml.c replaces NVML."""

import os

from tests.support.daemon import binary

OLD_DRIVER = "libfake_nvml_old.so"


class FakeGpus:
    """Fake GPUs GPU-0, GPU-1, …; workers see a test's changes at once."""

    def __init__(self, directory, count):
        self.path = directory / "machine"
        self.gpus = [{"uuid": f"GPU-{i}", "bus": f"{i + 1:x}", "memory": 80, "used": 1, "util": 50, "celsius": 40,
                      "watts": 300, "ecc": 0, "clocks": 0} for i in range(count)]
        self.lost = set()
        self.processes = []  # (GPU, pid)
        self.xids = []       # (GPU, number); each is reported once, so only append
        self.more = []       # additional lines in the library's format
        self.save()

    def save(self):
        lines = ["gpu " + " ".join(f"{k}={v}" for k, v in gpu.items()) + (" lost" if i in self.lost else "")
                 for i, gpu in enumerate(self.gpus)]
        lines += [f"process {gpu} {pid}" for gpu, pid in self.processes]
        lines += [f"xid {gpu} {number}" for gpu, number in self.xids]
        fresh = self.path.with_suffix(".next")
        fresh.write_text("\n".join(lines + self.more) + "\n")
        fresh.rename(self.path)

    def flags(self, library="libfake_nvml.so"):
        # The ranks need the variables that describe the fake machine.
        return [f"--nvml-library={binary('worker/gpu/testing/' + library)}", "--inherit-env=all"]

    def environment(self, environment):
        return dict(environment, FAKE_NVML=str(self.path))

    def start_worker(self, cluster, name="node-1", devices="auto", slots=1, library="libfake_nvml.so", flags=()):
        """Starts a worker that offers these GPUs and `slots` CPU slots."""
        return cluster.start_worker(name, slots, [*self.flags(library), f"--devices={devices}", *flags],
                                    env=self.environment(cluster.environment()))
