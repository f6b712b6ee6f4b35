"""The history of client calls, and whether the coordinator kept what it acknowledged.

A call that failed may or may not have taken effect. A call that returned is a guarantee: a submitted job exists from then
on under the id that was returned, a cancelled job never succeeds later, a state that was seen is never taken back.
"""

import threading

TERMINAL = ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT")


class History:
    """Records calls and collects violations. Thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        self._jobs = {}  # by idempotency key
        self._seen = {}  # newest (generation, state) by job
        self._cancelled = set()
        self.calls = 0
        self.violations = []

    def submitted(self, key, job):
        """The submission with this idempotency key returned the job."""
        with self._lock:
            self.calls += 1
            if (first := self._jobs.setdefault(key, job)) != job:
                self.violations.append(f"key {key} created {first} and {job}")

    def cancelled(self, job, state):
        """A cancel of the job returned this state of it."""
        with self._lock:
            self.calls += 1
            if state not in TERMINAL or state == "CANCELLED":
                self._cancelled.add(job)

    def listed(self, jobs, known):
        """A call returned all jobs; the jobs `known` had been acknowledged before it was made."""
        with self._lock:
            self.calls += 1
            by_id = {job["job_id"]: job for job in jobs}
            self.violations += [f"acknowledged job {job} is gone" for job in sorted(known - by_id.keys())]
            for name, job in by_id.items():
                self._see(name, int(job.get("generation", 0)), job["state"])

    def _see(self, job, generation, state):
        old_generation, old_state = self._seen.get(job, (0, "QUEUED"))
        self._seen[job] = (generation, state)
        if generation < old_generation:
            self.violations.append(f"{job} went back from generation {old_generation} to {generation}")
        if old_state in TERMINAL and state != old_state:
            self.violations.append(f"{job} was {old_state} and is {state}")
        if job in self._cancelled and state in ("SUCCEEDED", "FAILED"):
            self.violations.append(f"{job} was cancelled and is {state}")

    def acknowledged(self):
        """Ids of all jobs whose submission was acknowledged."""
        with self._lock:
            return set(self._jobs.values())
