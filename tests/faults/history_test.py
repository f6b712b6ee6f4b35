import unittest

from tests.faults.history import History


def job(name, state, generation=1):
    return {"job_id": name, "state": state, "generation": str(generation)}


class HistoryTest(unittest.TestCase):
    def setUp(self):
        self.history = History()

    def test_accepts_progress(self):
        self.history.submitted("a", "job-1")
        self.history.submitted("a", "job-1")
        for state, generation in (("RUNNING", 1), ("QUEUED", 1), ("RUNNING", 2), ("SUCCEEDED", 2)):
            self.history.listed([job("job-1", state, generation)], {"job-1"})
        self.history.cancelled("job-1", "SUCCEEDED")
        self.history.listed([job("job-1", "SUCCEEDED", 2)], {"job-1"})
        self.assertEqual(self.history.violations, [])
        self.assertEqual(self.history.acknowledged(), {"job-1"})
        self.assertEqual(self.history.calls, 8)

    def check_violation(self, text):
        self.assertEqual(self.history.violations, [text])

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
        self.history.listed([job("job-1", "RUNNING", 2)], set())
        self.history.listed([job("job-1", "RUNNING", 1)], set())
        self.check_violation("job-1 went back from generation 2 to 1")

    def test_reports_success_after_cancel(self):
        self.history.cancelled("job-1", "STOPPING")
        self.history.listed([job("job-1", "SUCCEEDED")], set())
        self.check_violation("job-1 was cancelled and is SUCCEEDED")


if __name__ == "__main__":
    unittest.main()
