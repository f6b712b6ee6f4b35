"""Records the session of a worker with a coordinator, both from the bazel-bin of another commit, for the replay tests.

    bazel build //cli:muster //tests/compatibility:recorder
    python3 -m tests.compatibility.record BAZEL_BIN > tests/compatibility/testdata/session_vN.txt
"""

import functools
import os
import pathlib
import sys

from tests.support.cluster import Cluster, Daemon, binary, shell_spec, training_spec, wait_until

COUNT = 'echo "step=$i loss=0.5" >> "$MUSTER_PROGRESS"; sleep 0.05'


def record(bazel_bin):
    old_coordinator, old_worker = (os.path.join(bazel_bin, path)
                                   for path in ("coordinator/muster-coordinator", "worker/muster-worker"))
    cluster = Cluster(coordinator_flags=["--heartbeat-interval=500ms"])
    cluster.start_coordinator = functools.partial(cluster.start_coordinator, program=old_coordinator)
    with cluster:
        path = cluster.directory / "transcript"
        recorder = Daemon("recorder", [binary("tests/compatibility/recorder"), cluster.address, str(path)],
                          cluster.directory)
        # In the environment, because workers of version 1 have no --machine-id.
        cluster.start_worker("node-1", slots=2, program=old_worker, flags=[
            f"--coordinator={recorder.addresses['grpc']}", f"--token-file={cluster.directory}/coordinator/token"],
            env=dict(cluster.environment(), MUSTER_MACHINE_ID="machine-1"))
        cluster.wait_for_nodes(1)

        def finish(job):
            cluster.wait(job, check=False)
            wait_until(lambda: f'forget {{ job_id: "{job}"' in path.read_text(), 10, f"{job} forgotten")

        # tests/compatibility/*_replay_test.cc know these names.
        finish(cluster.submit(shell_spec("command", f"for i in $(seq 20); do {COUNT}; done", ranks=2)))
        finish(cluster.submit(training_spec("training", max_steps=10, record_losses=True,
                                            resources={"nodes": 1, "ranks_per_node": 2, "device": "cpu"})))
        finish(cluster.submit(shell_spec("failing", "echo broken >&2; exit 3")))
        cancelled = cluster.submit(shell_spec("cancelled", f"i=0; while :; do i=$((i + 1)); {COUNT}; done"))
        step = int(cluster.wait_for_step(cancelled, 3)["progress"]["step"])
        cluster.coordinator.stop()
        cluster.start_coordinator()
        cluster.wait_for_step(cancelled, step + 3)
        cluster.muster("cancel", cancelled)
        finish(cancelled)
        recorder.stop()
        return path.read_text()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("# Session of a worker with a coordinator, recorded by tests/compatibility/record.py.")
    print(record(pathlib.Path(sys.argv[1]).resolve()), end="")
