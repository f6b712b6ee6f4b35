"""Clients that submit, cancel and list jobs while processes fail, and the marks that the jobs' ranks leave."""

import json
import random
import threading

from tests.faults.history import TERMINAL, History
from tests.support.cluster import shell_spec, wait_until

# Each process of a rank holds a lock for the job's rank and creates a mark for its generation.
RANK = """
set -o noclobber
mark=$MUSTER_JOB_ID.$MUSTER_GENERATION.$RANK
exec 9>> {marks}/lock.$MUSTER_JOB_ID.$RANK
flock -n 9 || echo "$mark ran beside another generation" >> {marks}/violations
true 2> /dev/null > {marks}/$mark || echo "$mark was started twice" >> {marks}/violations
sleep {seconds}
"""
CLIENTS = 3
MOST_UNFINISHED = 40


class Clients:
    """Threads that call the coordinator until the context ends."""

    def __init__(self, cluster, seed, shapes, folder=None):
        """`shapes`: the (nodes, ranks per node) of the jobs. `folder`: for marks, visible to all ranks."""
        self.cluster = cluster
        self.history = History()
        self.jobs = []  # as last listed
        self._shapes = shapes
        self._marks = (folder or cluster.directory) / "marks"
        self._marks.mkdir()
        self._stopping = threading.Event()
        self._listing = threading.Lock()
        self._threads = [threading.Thread(target=self._call, args=(random.Random(seed + i), f"{seed}-{i}"))
                         for i in range(CLIENTS)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *unused):
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def violations(self):
        marked = self._marks / "violations"
        return self.history.violations + (marked.read_text().splitlines() if marked.exists() else [])

    def wait_for_end(self, timeout=120):
        """Waits until all jobs of the clients have ended, and returns their states by id."""
        known = self.history.acknowledged()

        def ended():
            self._list(known)
            return self._unfinished() == 0
        wait_until(ended, timeout, "the end of all jobs")
        return {job["job_id"]: job["state"] for job in self.jobs if job["job_id"] in known}

    def _call(self, choice, name):
        number = 0
        while not self._stopping.is_set():
            known = self.history.acknowledged()
            action = choice.random()
            if action < 0.4 and self._unfinished() < MOST_UNFINISHED:
                number += 1
                self._submit(f"{name}-{number}", choice)
            elif action < 0.5 and known:
                self._cancel(choice.choice(sorted(known)))
            else:
                self._list(known)
            self._stopping.wait(choice.uniform(0, 0.2))

    def _submit(self, key, choice):
        nodes, ranks = choice.choice(self._shapes)
        script = RANK.format(marks=self._marks, seconds=round(choice.uniform(0, 2), 2))
        spec = shell_spec(f"job-{key}", script, nodes=nodes, ranks=ranks, restart={"max": 1000}, grace_period="1s",
                          failure_timeout="1s")
        path = self.cluster.write_spec(spec)
        # A client that got no answer repeats the call with the same key.
        while not self._stopping.is_set():
            result = self.cluster.muster("submit", path, "--idempotency-key", key, "-o", "name", check=False)
            if result.returncode == 0:
                return self.history.submitted(key, result.stdout.strip())
            self._stopping.wait(0.1)

    def _cancel(self, job):
        result = self.cluster.muster("cancel", job, "--grace", "0s", "-o", "json", check=False)
        if result.returncode == 0:
            self.history.cancelled(job, json.loads(result.stdout)["state"])

    def _list(self, known):
        with self._listing:  # a list that began earlier may return older states
            result = self.cluster.muster("list", "--all", "-o", "json", check=False)
            if result.returncode == 0:
                self.jobs = json.loads(result.stdout)
                self.history.listed(self.jobs, known)

    def _unfinished(self):
        return sum(job["state"] not in TERMINAL for job in self.jobs)
