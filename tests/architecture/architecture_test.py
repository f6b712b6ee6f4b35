"""Enforces the tree's layering: reads every #include and fails on forbidden ones. Also finds names of files that do not
exist, and dependencies that every target has anyway."""

import pathlib
import re
import tempfile
import unittest

SOURCES = (".h", ".cc", ".cu", ".cuh", ".inc")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)

# For each top-level folder, the other folders that it may include. Folders without an entry may
# include everything: tests.
ALLOWED = {
    "proto": set(),
    "common": {"proto"},
    "spec": {"common", "proto"},
    "kernels": {"common"},
    "collectives": {"common", "kernels"},
    "process_group": {"collectives", "common", "kernels", "proto"},
    "trainer": {"collectives", "common", "kernels", "proto", "spec"},
    "worker": {"common", "proto", "spec"},
    "coordinator": {"common", "proto", "spec"},
    "cli": {"common", "proto", "spec"},
    "examples": {"common", "process_group"},
}
FOLDERS = set(ALLOWED) | {"tests", "deploy"}

# Rules inside a folder: files under the first path may not include anything under the second one.
FORBIDDEN = [
    ("trainer/graph", "collectives/", "graphs must not depend on communication"),
    ("trainer/graph", "trainer/strategy", "plans must not depend on strategies"),
    ("trainer/loop", "trainer/strategy/*/", "the training loop may use the Strategy interface only"),
    ("trainer/strategy", "trainer/loop", "the training loop drives strategies"),
    ("trainer/optim", "trainer/strategy", "strategies use optimizers"),
    ("trainer/precision", "trainer/strategy", "strategies choose the precision"),
    ("trainer/tensorboard", "trainer/loop", "the training loop writes TensorBoard files"),
    ("trainer/rank", "trainer/strategy/*/", "a rank may use the Strategy interface only"),
    ("kernels/*.h", "kernels/*/", "interfaces must not depend on a device"),
    ("coordinator/core", "coordinator/service", "the service drives the core"),
    ("coordinator/store", "coordinator/service", "the store is a lower layer than the service"),
]

# coordinator/core is a pure state machine: it has no network, thread, clock, disk or source of randomness.
IMPURE = re.compile(
    r"^(grpc|thread|mutex|shared_mutex|condition_variable|future|atomic|chrono|ctime|time\.h|fstream|filesystem|random|"
    r"unistd\.h|fcntl\.h|sys/|pthread\.h|sqlite3\.h|absl/synchronization/|absl/time/clock\.h|absl/random/|"
    r"common/time/(?:now|deadline|steady_\w+)\.h)"
)

# Deadlines, leases, delays, ages and charges are measured on the steady clock (common/time/deadline.h): setting the
# wall clock must not change them. docs/design/architecture.md lists the calendar values, which the wall clock gives.
WALL_CLOCK = re.compile(
    r"absl::Now\b|system_clock|high_resolution_clock|CLOCK_REALTIME|CLOCK_TAI|\bgettimeofday\b|\btime\((?:nullptr|NULL|0|&)|"
    r"\.wall\b"
)
MAY_READ_WALL_CLOCK = {
    "common/time/file_clock.h": "compares with modification times of files, never too early",
    "common/time/now.h": "reads the clocks",
    # Dates shown.
    "cli/verbs/": "dates shown, certificates and join tokens",
    "coordinator/core/identity/identity_table.cc": "expiry of certificates and join tokens",
    "coordinator/core/jobs/job_states.cc": "dates shown",
    "coordinator/core/jobs/job_submission.cc": "dates shown",
    "coordinator/core/jobs/job_table.cc": "dates shown",
    "coordinator/core/owners/report.cc": "dates shown",
    "coordinator/core/recovery/failures.cc": "a metric: the date of an exit on its node",
    "coordinator/core/recovery/hangs.cc": "dates shown",
    "coordinator/core/sessions/takeovers.cc": "dates shown",
    "coordinator/core/sessions/train_reports.cc": "shown: the date of the first step on its node",
    "coordinator/core/steady_clock.cc": "the time in which no coordinator ran",
    "coordinator/core/steady_clock.h": "passes the wall time on",
    "coordinator/core/views/queue_views.cc": "dates shown",
    "coordinator/core/views/views.cc": "dates shown",
    "coordinator/service/auth/audit_log.cc": "dates shown",
    "coordinator/service/auth/authorizer.cc": "expiry of certificates",
    "coordinator/service/calls/cluster_methods.cc": "expiry of logins to the status page",
    "coordinator/service/coordinator.cc": "expiry of certificates, dates of uploaded files",
    "coordinator/service/relay/file_calls.cc": "dates of uploaded files",
    "coordinator/service/calls/identity_service.cc": "expiry of certificates and join tokens",
    "coordinator/service/calls/submit.cc": "dates of uploaded files",
    "coordinator/service/metrics/metrics.cc": "dates shown: which ended jobs are exported",
    "trainer/data/folder_index.cc": "compared with modification times of files",
    "trainer/loop/progress.cc": "dates shown: the first step",
    "trainer/loop/step_trace.cc": "dates shown",
    "trainer/tensorboard/tensorboard.h": "dates of events",
    "kernels/cuda/convolution/cudnn/plan_cache.h": "dates of plans, by which unused ones are removed",
    "worker/agent/generation/ranks/exit_info.cc": "dates shown",
    "worker/agent/generation/ranks/rank.cc": "dates shown",
    "worker/agent/rank/progress_file.cc": "dates shown: the first step",
    "worker/agent/rank/rank_service.cc": "deadlines of gRPC, at their arrival",
    "worker/certificate_renewer.cc": "expiry of certificates",
    "worker/shim/cgroup.cc": "compared with modification times of files",
    "worker/shim/clock.cc": "dates of log lines and exits",
}
# Timed waits that end by the wall clock, and would last for hours longer if it were set back. SteadyCondVar and
# SteadyNotification replace them. Relative sleeps (absl::SleepFor) do not depend on it.
WALL_CLOCK_WAIT = re.compile(
    r"\b\w*(?:Await|Wait|Lock|LockWhen|Notification)With(?:Timeout|Deadline)\(|\b(?:pthread_\w+_timed\w+|sem_timedwait|"
    r"mq_timed\w+|TFD_TIMER_CANCEL_ON_SET|FUTEX_CLOCK_REALTIME)\b"
)


def is_test(path):
    return bool(re.search(r"(_test|_bench)\.\w+$", path.name)) or path.stem == "testing" or "testing" in path.parts


def matches(pattern, path):
    """Whether `path` is under `pattern`, in which * is any one name."""
    expression = re.escape(pattern).replace(r"\*", "[^/]+")
    end = "" if pattern.endswith("/") else r"(/|\.\w+$|$)"
    return re.match(expression + end, path) is not None


def violations(root):
    """Lines `FILE includes HEADER: REASON` for all forbidden includes under `root`."""
    found = []
    for path in sorted(root.rglob("*")):
        file = path.relative_to(root)
        folder = file.parts[0]
        if folder not in ALLOWED or path.suffix not in SOURCES:
            continue
        for kind, header in INCLUDE.findall(path.read_text(encoding="utf-8", errors="replace")):
            why = reason_against(file, folder, kind, header)
            if why:
                found.append(f"{file} includes {header}: {why}")
    return found


def code_of(path):
    return re.sub(r"//.*", "", path.read_text(encoding="utf-8", errors="replace"))


def wall_clock_uses(root):
    """Lines `FILE uses NAME` for all uses of the wall clock under `root` that are not permitted."""
    found = []
    for path in sorted(root.rglob("*")):
        file = path.relative_to(root)
        supports_tests = re.match(r"(fake|scripted)_|\w+_fixture\.", file.name)
        if file.parts[0] not in ALLOWED or path.suffix not in SOURCES or is_test(file) or supports_tests:
            continue
        code = code_of(path)
        uses = WALL_CLOCK_WAIT.findall(code)
        if not any(matches(pattern, str(file)) for pattern in MAY_READ_WALL_CLOCK):
            uses += WALL_CLOCK.findall(code)
        found.extend(f"{file} uses {use}" for use in uses)
    return found


# A file of this tree in a comment or on a page. Names in capitals, such as docs/NAME.md, are placeholders.
FILE = re.compile(r"(?<![\w/.:\-{$*])((?:%s|docs|bazel)/[a-z0-9_./-]*\.(?:cc|h|cu|inc|py|proto|md|js|sh|bzl|yaml))\b"
                  % "|".join(sorted(FOLDERS)))
COMMENT = re.compile(r"//.*|^\s*#(?!\s*include).*", re.MULTILINE)
# Files that a page tells its reader to create.
EXAMPLES = {"cli/verbs/pause.cc"}


def absent_files(root):
    """Lines `FILE names PATH` for the files of comments and pages that do not exist under `root`."""
    found = []
    for path in sorted(root.rglob("*")):
        file = path.relative_to(root)
        if file.parts[0] not in FOLDERS | {"docs", "bazel"} and len(file.parts) > 1 or not path.is_file():
            continue
        if path.suffix == ".md":
            texts = [path.read_text(encoding="utf-8")]
        elif path.suffix in SOURCES + (".proto",) or path.name == "BUILD":
            texts = COMMENT.findall(path.read_text(encoding="utf-8", errors="replace"))
        else:
            continue
        names = {name for text in texts for name in FILE.findall(text)} - EXAMPLES
        found.extend(f"{file} names {name}" for name in sorted(names) if not (root / name).exists())
    return found


def needless_dependencies(root):
    """BUILD files that list Abseil, which the rules of bazel/cc.bzl add."""
    return [str(path.relative_to(root)) for folder in sorted(ALLOWED) for path in sorted((root / folder).rglob("BUILD"))
            if '"@system//:absl"' in path.read_text(encoding="utf-8")]


def reason_against(file, folder, kind, header):
    target = header.split("/")[0]
    if kind == '"' and "/" in header and target in FOLDERS and target != folder and target not in ALLOWED[folder]:
        return f"{folder}/ may include only {', '.join(sorted(ALLOWED[folder])) or 'itself'}"
    if is_test(file):
        return None
    for source, forbidden, why in FORBIDDEN:
        if matches(source, str(file)) and matches(forbidden, header):
            return why
    if matches("coordinator/core", str(file)) and IMPURE.match(header):
        return "the core is a pure state machine"
    return None


class ArchitectureTest(unittest.TestCase):
    maxDiff = None

    def test_tree_follows_rules(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        self.assertTrue((root / "WORKSPACE").exists(), f"{root} is not the source tree")
        for folder in ALLOWED:
            self.assertTrue((root / folder).is_dir(), f"there is no {folder}/")
        self.assertEqual(violations(root), [])

    def test_named_files_exist(self):
        self.assertEqual(absent_files(pathlib.Path(__file__).resolve().parents[2]), [])

    def test_reports_named_files_that_do_not_exist(self):
        files = {"common/a.cc": '// As common/gone.h says.\n#include "common/absent.h"\n',
                 "docs/a.md": "See `docs/b.md`, docs/NAME.md and docs/a.md.",
                 "spec/BUILD": "# spec/gone.cc\nsrcs = 1\n"}
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            for name, text in files.items():
                (root / name).parent.mkdir(exist_ok=True)
                (root / name).write_text(text)
            self.assertEqual(absent_files(root), ["common/a.cc names common/gone.h", "docs/a.md names docs/b.md",
                                                  "spec/BUILD names spec/gone.cc"])

    def test_dependencies_are_needed(self):
        self.assertEqual(needless_dependencies(pathlib.Path(__file__).resolve().parents[2]), [])

    def test_time_is_measured_on_steady_clock(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        self.assertEqual(wall_clock_uses(root), [])
        for pattern in MAY_READ_WALL_CLOCK:
            with self.subTest(pattern=pattern):
                files = [root / pattern] if not pattern.endswith("/") else list((root / pattern).glob("*.cc"))
                self.assertTrue(any(WALL_CLOCK.search(code_of(file)) for file in files), "it need not be permitted")

    def test_reports_use_of_wall_clock(self):
        with tempfile.TemporaryDirectory(prefix="muster-architecture.") as folder:
            root = pathlib.Path(folder)
            (root / "collectives").mkdir()
            (root / "collectives/a.cc").write_text("x = absl::Now() + t;\nm.AwaitWithTimeout(c, t);  // absl::Now\n")
            (root / "collectives/a_test.cc").write_text("absl::Now()")
            (root / "cli/verbs").mkdir(parents=True)
            (root / "cli/verbs/a.cc").write_text("absl::Now(); n.WaitForNotificationWithTimeout(t); absl::SleepFor(t)")
            (root / "coordinator").mkdir()
            (root / "coordinator/a.cc").write_text("deadline = now.wall + t; end = std::time(nullptr) + 1;")
            self.assertEqual(
                wall_clock_uses(root),
                [
                    "cli/verbs/a.cc uses WaitForNotificationWithTimeout(",
                    "collectives/a.cc uses AwaitWithTimeout(",
                    "collectives/a.cc uses absl::Now",
                    "coordinator/a.cc uses .wall",
                    "coordinator/a.cc uses time(nullptr",
                ],
            )

    def test_reports_forbidden_includes(self):
        cases = {
            "worker/agent/a.cc": '#include "trainer/loop/trainer.h"',
            "trainer/graph/a.cc": '#include "collectives/communicator.h"',
            "trainer/loop/a.cc": '#include "trainer/strategy/pipeline/stage.h"',
            "trainer/strategy/a.cc": '#include "trainer/loop/trainer.h"',
            "process_group/a.cc": '#include "worker/agent/agent.h"',
            "kernels/a.h": '#include "kernels/cpu/table.h"',
            "kernels/cpu/a.cc": '#include "trainer/graph/graph.h"',
            "cli/a.cc": '#  include "coordinator/core/core.h"',
            "coordinator/core/jobs/a.cc": "#include <thread>",
            "coordinator/core/b.cc": "#include <grpcpp/grpcpp.h>",
            "coordinator/core/c.h": '#include "absl/time/clock.h"',
            "coordinator/core/d.h": "#include <fstream>",
            "coordinator/core/e.cc": '#include "coordinator/service/coordinator.h"',
            "coordinator/core/f.h": '#include "common/time/now.h"',
        }
        for file, line in cases.items():
            with self.subTest(file=file):
                self.assertEqual(len(self.found_in({file: line})), 1)

    def test_accepts_permitted_includes(self):
        self.assertEqual(
            self.found_in(
                {
                    "trainer/loop/a.cc": '#include "trainer/strategy/strategy.h"\n#include <thread>',
                    "coordinator/core/a.cc": '#include "absl/time/time.h"\n#include "common/time/time.h"',
                    "coordinator/core/a_test.cc": "#include <filesystem>",
                    "tests/e2e/a.cc": '#include "worker/agent/agent.h"\n#include "trainer/loop/trainer.h"',
                    "kernels/cpu/a.cc": '#include "kernels/activation.h"\n#include "common/status.h"',
                }
            ),
            [],
        )

    def found_in(self, files):
        with tempfile.TemporaryDirectory(prefix="muster-architecture.") as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            return violations(root)


if __name__ == "__main__":
    unittest.main()
