"""Clients that call the coordinator while processes fail, and the marks that the jobs' ranks leave."""

import contextlib
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

    def __init__(self, cluster, seed, shapes, folder=None, script=RANK):
        """`shapes`: the (nodes, ranks per node) of the jobs. `folder`: for marks, visible to all ranks."""
        self.cluster = cluster
        self.history = History()
        self.jobs = []  # as last listed
        self._shapes = shapes
        self._script = script
        self.marks = (folder or cluster.directory) / "marks"
        self.marks.mkdir()
        self._stopping = threading.Event()
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
        marked = self.marks / "violations"
        return self.history.violations + (marked.read_text().splitlines() if marked.exists() else [])

    def wait_for_end(self, timeout=120):
        """Releases held jobs, waits until all jobs of the clients have ended, and returns their states by id."""
        known = self.history.acknowledged()

        def ended():
            self._list(known)
            for job in self.jobs:
                if job["state"] == "HELD":
                    self._release(job["job_id"])
            return self._unfinished() == 0
        wait_until(ended, timeout, "the end of all jobs")
        return {job["job_id"]: job["state"] for job in self.jobs if job["job_id"] in known}

    def _call(self, choice, name):
        number = 0
        actions = ((0.06, self._cancel), (0.06, self._hold), (0.06, self._release), (0.06, self._requeue),
                   (0.06, self._wait), (0.1, self._get))
        while not self._stopping.is_set():
            known = self.history.acknowledged()
            chosen = choice.random()
            if chosen < 0.35 and self._unfinished() < MOST_UNFINISHED:
                number += 1
                self._submit(f"{name}-{number}", choice)
            elif chosen < 0.35 or chosen >= 0.75 or not known:
                self._list(known)
            else:
                weights, calls = zip(*actions)
                choice.choices(calls, weights)[0](choice.choice(sorted(known)))
            self._stopping.wait(choice.uniform(0, 0.2))

    def _submit(self, key, choice):
        nodes, ranks = choice.choice(self._shapes)
        script = self._script.format(marks=self.marks, seconds=round(choice.uniform(0, 2), 2))
        spec = shell_spec(f"job-{key}", script, nodes=nodes, ranks=ranks, restart={"max": 1000}, grace_period="1s",
                          failure_timeout="1s")
        path = self.cluster.write_spec(spec)
        # A client that got no answer repeats the call with the same key.
        while not self._stopping.is_set():
            result = self.cluster.muster("submit", path, "--idempotency-key", key, "-o", "name", check=False)
            if result.returncode == 0:
                return self.history.submitted(key, result.stdout.strip())
            self._stopping.wait(0.1)

    def _ask(self, *args):
        """The job that a call returned, or None."""
        result = self.cluster.muster(*args, "-o", "json", check=False)
        with contextlib.suppress(json.JSONDecodeError):
            job = json.loads(result.stdout)
            return job if isinstance(job, dict) and "state" in job else None
        return None

    def _get(self, name):
        before = self.history.begin()
        if job := self._ask("get", name):
            self.history.returned(job, before)

    def _wait(self, name):
        before = self.history.begin()
        # Also returns jobs that did not succeed.
        if job := self._ask("wait", name, "--timeout", "500ms"):
            self.history.returned(job, before)

    def _cancel(self, name):
        before = self.history.begin()
        if job := self._ask("cancel", name, "--grace", "0s"):
            self.history.cancelled(job, before)

    def _hold(self, name):
        before = self.history.begin()
        if job := self._ask("hold", name):
            self.history.held(job, before)

    def _release(self, name):
        self.history.releasing(name)
        before = self.history.begin()
        if job := self._ask("release", name):
            self.history.returned(job, before)

    def _requeue(self, name):
        self.history.releasing(name)
        before = self.history.begin()
        if job := self._ask("requeue", name):
            self.history.returned(job, before)

    def _list(self, known):
        before = self.history.begin()
        result = self.cluster.muster("list", "--all", "-o", "json", check=False)
        if result.returncode == 0:
            self.jobs = json.loads(result.stdout)
            self.history.listed(self.jobs, known, before)

    def _unfinished(self):
        return sum(job["state"] not in TERMINAL for job in self.jobs)
