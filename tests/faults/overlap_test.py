"""Two generations of a job run at the same time: the older one was paused, and its checkpoints change nothing."""

import contextlib
import os
import pathlib
import random
import re
import signal
import threading
import time
import unittest

from tests.support.cluster import Cluster, training_spec, wait_until

FLAGS = ["--lease=1s", "--job-lease=2s", "--heartbeat-interval=200ms"]
STEPS, EVERY, KEEP = 500, 5, 3


def checkpoints(directory):
    """(generation, step) of each published checkpoint."""
    names = [re.fullmatch(r"step-(\d+)\.g(\d+)", path.name) for path in pathlib.Path(directory).glob("step-*")]
    return sorted((int(name[2]), int(name[1])) for name in names if name)


class Watch(threading.Thread):
    """Looks at a directory all the time: the newest checkpoint may only be replaced by a newer one."""

    def __init__(self, directory):
        super().__init__()
        self.directory = directory
        self.done = threading.Event()
        self.newest, self.lost = (0, 0), []

    def run(self):
        while not self.done.is_set():
            newest = max(checkpoints(self.directory), default=(0, 0))
            if newest < self.newest:
                self.lost.append((self.newest, newest))
            self.newest = newest

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.done.set()
        self.join()


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


class Overlaps(unittest.TestCase):
    def start(self):
        seed = int(os.environ.get("MUSTER_TEST_SEED", random.randrange(1 << 32)))
        print(f"MUSTER_TEST_SEED={seed}", flush=True)
        self.random = random.Random(seed)
        self.cluster = self.enterContext(Cluster(nodes=2, coordinator_flags=FLAGS))

    def directory(self, name):
        return self.cluster.directory / f"checkpoints-{name}"

    def submit(self, name):
        return self.cluster.submit(training_spec(
            name, max_steps=STEPS, seed=1, failure_timeout="2s",
            checkpoint={"dir": str(self.directory(name)), "every_steps": EVERY, "keep": KEEP}))

    def finished(self, job):
        finished = self.cluster.wait(job)
        self.assertEqual(finished["state"], "SUCCEEDED", finished)
        return finished["summary"]["weights_digest"]

    def send(self, pids, number):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def overlap(self, name):
        """Pauses the rank, its shim and its worker until the next generation writes, then resumes them."""
        job = self.submit(name)
        self.cluster.wait_for_step(job, 50)
        node = self.cluster.describe(job)["ranks"][0]["node"]
        worker = self.cluster.workers[node].pid
        with Watch(self.directory(name)) as watch:
            time.sleep(self.random.uniform(0, 0.3))  # the moment is random: often while a checkpoint is written
            rank = self.cluster.rank_pids(node)[0]
            paused = [worker, parent_of(rank), rank]
            self.send(paused, signal.SIGSTOP)
            try:
                wait_until(lambda: max(checkpoints(self.directory(name)), default=(0, 0))[0] == 2, 30,
                           "a checkpoint of generation 2")
                self.send([rank], signal.SIGCONT)
                time.sleep(self.random.uniform(0, 0.5))  # the old generation alone, for a random time
            finally:
                self.send(paused, signal.SIGCONT)
            digest = self.finished(job)
        self.assertEqual(watch.lost, [])
        self.assertEqual(watch.newest, (2, STEPS))
        self.cluster.wait_for_nodes(2)
        return digest

    def run_overlaps(self, count):
        self.start()
        undisturbed = self.finished(self.submit("undisturbed"))
        for number in range(count):
            self.assertEqual(self.overlap(f"overlap-{number}"), undisturbed)


class OverlapTest(Overlaps):
    def test_older_generation_harms_nothing(self):
        self.run_overlaps(1)


class OverlapLongTest(Overlaps):
    """Run by `tests/run.sh --full`."""

    def test_older_generation_harms_nothing(self):
        self.run_overlaps(20)


if __name__ == "__main__":
    unittest.main()
