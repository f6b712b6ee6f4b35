import unittest

from tests.faults.history import History


def job(name, state, generation=1):
    return {"job_id": name, "state": state, "generation": str(generation)}


class HistoryTest(unittest.TestCase):
    def setUp(self):
        self.history = History()

    def see(self, *states, generation=1):
        for state in states:
            self.history.returned(job("job-1", state, generation))

    def check_violation(self, text):
        self.assertEqual(self.history.violations, [text])

    def test_accepts_progress(self):
        self.history.submitted("a", "job-1")
        self.history.submitted("a", "job-1")
        self.see("QUEUED", "HELD", "QUEUED", generation=0)
        for state, generation in (("RUNNING", 1), ("STOPPING", 1), ("QUEUED", 1), ("RUNNING", 2), ("SUCCEEDED", 2)):
            self.history.listed([job("job-1", state, generation)], {"job-1"})
        self.history.cancelled(job("job-1", "SUCCEEDED", 2))
        self.history.listed([job("job-1", "SUCCEEDED", 2)], {"job-1"})
        self.assertEqual(self.history.violations, [])
        self.assertEqual(self.history.acknowledged(), {"job-1"})
        self.assertEqual(self.history.calls, 12)

    def test_reports_lost_job(self):
        self.history.listed([], {"job-1"})
        self.check_violation("acknowledged job job-1 is gone")

    def test_reports_key_with_two_jobs(self):
        self.history.submitted("a", "job-1")
        self.history.submitted("a", "job-2")
        self.check_violation("key a created job-1 and job-2")

    def test_reports_changed_end(self):
        self.history.listed([job("job-1", "SUCCEEDED")], set())
        self.history.listed([job("job-1", "QUEUED")], set())
        self.check_violation("job-1 was SUCCEEDED and is QUEUED")

    def test_reports_earlier_generation(self):
        self.see("RUNNING", generation=2)
        self.see("RUNNING", generation=1)
        self.check_violation("job-1 went back from generation 2 to 1")

    def test_reports_earlier_state_of_a_generation(self):
        self.see("RUNNING", "STARTING")
        self.check_violation("job-1 went back from RUNNING to STARTING in generation 1")

    def test_reports_generation_that_starts_again(self):
        self.see("STOPPING", "QUEUED", "STARTING")
        self.check_violation("job-1 went back from QUEUED to STARTING in generation 1")

    def test_remembers_newest_state_when_replies_cross(self):
        before = self.history.begin()
        self.see("STOPPING")
        self.history.returned(job("job-1", "RUNNING"), before)
        self.assertEqual(self.history.violations, [], "the call began before STOPPING was known")
        self.see("RUNNING")
        self.check_violation("job-1 went back from STOPPING to RUNNING in generation 1")

    def test_reports_success_after_cancel(self):
        self.history.cancelled(job("job-1", "STOPPING"))
        self.history.returned(job("job-1", "SUCCEEDED"))
        self.check_violation("job-1 was cancelled and is SUCCEEDED")

    def test_accepts_end_that_crosses_cancel(self):
        before = self.history.begin()
        self.history.cancelled(job("job-1", "SUCCEEDED"))
        self.history.returned(job("job-1", "SUCCEEDED"), before)
        self.assertEqual(self.history.violations, [])

    def test_reports_start_of_held_job(self):
        self.history.held(job("job-1", "HELD", 0), self.history.begin())
        self.see("STARTING")
        self.check_violation("job-1 was held and is STARTING")

    def test_accepts_start_after_release(self):
        self.history.held(job("job-1", "HELD", 0), self.history.begin())
        before = self.history.begin()
        self.history.releasing("job-1")
        self.history.returned(job("job-1", "STARTING"), before)
        self.assertEqual(self.history.violations, [])

    def test_accepts_hold_that_crosses_release(self):
        before = self.history.begin()
        self.history.releasing("job-1")
        self.history.held(job("job-1", "HELD", 0), before)
        self.see("STARTING")
        self.assertEqual(self.history.violations, [], "the release may have come after the hold")


if __name__ == "__main__":
    unittest.main()
