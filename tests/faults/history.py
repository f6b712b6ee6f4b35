"""The history of client calls, and whether the coordinator kept what it acknowledged.

A call that failed may or may not have taken effect. A call that returned is a guarantee: a submitted job exists from then
on under the id that was returned, a cancelled job never succeeds later, a held job does not start before its release,
and a state that was seen is never taken back. A reply is compared with what was known when its call began: a call that
began later may return first.
"""

import threading

TERMINAL = ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT")
# The order of states within a generation. A job waits for its next one with the number of the last.
ORDER = {"STARTING": 1, "RUNNING": 2, "STOPPING": 3, "QUEUED": 4, "HELD": 4, **dict.fromkeys(TERMINAL, 5)}


class History:
    """Records calls and collects violations. Thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        self._jobs = {}  # by idempotency key
        self._seen = {}  # newest (generation, state) by job
        self._cancelled = set()
        self._held = set()
        self._releases = {}  # number of calls that may have released the job
        self.calls = 0
        self.violations = []

    def begin(self):
        """What is known now; pass it to the method that records the reply of a call that begins now."""
        with self._lock:
            return {"seen": dict(self._seen), "held": set(self._held), "cancelled": set(self._cancelled),
                    "releases": dict(self._releases)}

    def submitted(self, key, job):
        """The submission with this idempotency key returned the job."""
        with self._lock:
            self.calls += 1
            if (first := self._jobs.setdefault(key, job)) != job:
                self.violations.append(f"key {key} created {first} and {job}")

    def returned(self, job, before=None):
        """A call returned the job."""
        before = before or self.begin()
        with self._lock:
            self.calls += 1
            self._see(job, before)

    def cancelled(self, job, before=None):
        """A cancel returned the job."""
        before = before or self.begin()
        with self._lock:
            self.calls += 1
            self._see(job, before)
            if job["state"] not in TERMINAL or job["state"] == "CANCELLED":
                self._cancelled.add(job["job_id"])

    def held(self, job, before):
        """A hold returned the job."""
        with self._lock:
            self.calls += 1
            self._see(job, before)
            name = job["job_id"]
            if job["state"] == "HELD" and self._releases.get(name, 0) == before["releases"].get(name, 0):
                self._held.add(name)

    def releasing(self, name):
        """A call that may release the job, or end it, is about to begin."""
        with self._lock:
            self._held.discard(name)
            self._releases[name] = self._releases.get(name, 0) + 1

    def listed(self, jobs, known, before=None):
        """A call returned all jobs; the jobs `known` had been acknowledged before it was made."""
        before = before or self.begin()
        with self._lock:
            self.calls += 1
            by_id = {job["job_id"] for job in jobs}
            self.violations += [f"acknowledged job {job} is gone" for job in sorted(known - by_id)]
            for job in jobs:
                self._see(job, before)

    def _see(self, job, before):
        name, state = job["job_id"], job["state"]
        place = (int(job.get("generation", 0)), state)
        old_generation, old_state = before["seen"].get(name, (0, ""))
        if place[0] < old_generation:
            self.violations.append(f"{name} went back from generation {old_generation} to {place[0]}")
        elif old_state in TERMINAL and state != old_state:
            self.violations.append(f"{name} was {old_state} and is {state}")
        elif place[0] == old_generation and ORDER[state] < ORDER.get(old_state, 0):
            self.violations.append(f"{name} went back from {old_state} to {state} in generation {old_generation}")
        if name in before["cancelled"] and state in ("SUCCEEDED", "FAILED"):
            self.violations.append(f"{name} was cancelled and is {state}")
        if name in before["held"] & self._held and state in ("STARTING", "RUNNING"):
            self.violations.append(f"{name} was held and is {state}")
        newest = self._seen.get(name, (0, ""))
        if (place[0], ORDER[state]) >= (newest[0], ORDER.get(newest[1], 0)):
            self._seen[name] = place

    def acknowledged(self):
        """Ids of all jobs whose submission was acknowledged."""
        with self._lock:
            return set(self._jobs.values())
