"""Counts the test cases of one Bazel run: count_results.py BUILD_EVENTS.json [MORE_TEST.xml…]

Reads the XML files of the run's tests, and of tests run outside Bazel. Prints how long the tests of each tier ran, and
`N passed, N failed, N skipped`. Exit status 1 if a test failed or none ran.
"""

import json
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


def cases(path):
    """(passed, failed, skipped) of one test.xml."""
    passed = failed = skipped = 0
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("result") == "suppressed":
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def tier(label):
    for prefix, name in (("//tests/simulation", "simulation"), ("//kernels/cuda", "CUDA on the CPU"),
                         ("//tests/gpu/ptx", "PTX on the CPU"), ("//tests/rank", "unit"), ("//tests/", "end to end")):
        if label.startswith(prefix):
            return name
    return "unit"


def covered(intervals):
    """Total length of the union of intervals (begin, end)."""
    total = end = 0
    for first, last in sorted(intervals):
        total += max(0, last - max(first, end))
        end = max(end, last)
    return total


def print_tiers(runs):
    """`runs`: (label, begin, end) of each test, in milliseconds. Tests of a tier may run at the same time."""
    for name in sorted({tier(label) for label, _, _ in runs}):
        own = [run for run in runs if tier(run[0]) == name]
        longest = max(own, key=lambda run: run[2] - run[1])
        print(f"{name}: {covered([run[1:] for run in own]) / 1000:.0f} s in {len(own)} targets, longest "
              f"{longest[0]} {(longest[2] - longest[1]) / 1000:.0f} s")


def main():
    runs = []
    passed = failed = skipped = 0
    with open(sys.argv[1], encoding="utf-8") as events:
        for line in events:
            event = json.loads(line)
            result = event.get("testResult")
            if result is None:
                continue
            label = event["id"]["testResult"]["label"]
            begin, length = (int(result.get(key, 0)) for key in ("testAttemptStartMillisEpoch", "testAttemptDurationMillis"))
            runs.append((label, begin, begin + length))
            counts = (0, 0, 0)
            for output in result.get("testActionOutput", []):
                if output["name"] == "test.xml":
                    path = urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
                    counts = cases(path)
            # A test that crashed or timed out may not have recorded a failing case.
            if result["status"] != "PASSED" and counts[1] == 0:
                counts = (counts[0], 1, counts[2])
            if counts[1]:
                print(f"failed: {label} ({counts[1]} of {sum(counts)})")
            passed, failed, skipped = (a + b for a, b in zip((passed, failed, skipped), counts))
    for path in sys.argv[2:]:
        counts = cases(path)
        if counts[1]:
            print(f"failed: {path} ({counts[1]} of {sum(counts)})")
        passed, failed, skipped = (a + b for a, b in zip((passed, failed, skipped), counts))
    print_tiers(runs)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
