"""More jobs than slots: all jobs run, in queue order, and no slot is assigned twice."""

import json
import unittest

from tests.support.cluster import Cluster, parse_time, shell_spec, wait_until

JOBS = 32
SLOTS = 4

# Each rank records its start and end with short lines, which O_APPEND writes atomically.
RECORD = 'echo "$MUSTER_JOB_ID $RANK $EPOCHREALTIME {}" >> $RECORD'
SCRIPT = f"{RECORD.format('begin')}; sleep $SECONDS_LONG; {RECORD.format('end')}"


class Run:
    """The jobs of one test, submitted together while a first job occupies every slot."""

    def __init__(self, cluster, shapes):
        self.cluster = cluster
        self.record = cluster.directory / "record"
        gate = cluster.directory / "gate"
        first = cluster.submit(shell_spec("first", f"until [ -e {gate} ]; do sleep 0.05; done", nodes=2, ranks=2))
        cluster.wait_for_state(first, "RUNNING")
        clients = []
        for i, (nodes, ranks) in enumerate(shapes):
            spec = shell_spec(f"job-{i:02}", SCRIPT, nodes=nodes, ranks=ranks,
                              env={"RECORD": str(self.record), "SECONDS_LONG": f"0.{1 + i % 3}"})
            clients.append(cluster.popen("submit", cluster.write_spec(spec), "-o", "name"))
        ids = []
        for client in clients:
            out, err = client.communicate(timeout=60)
            assert client.returncode == 0, err
            ids.append(out.strip())
        queued = {id: cluster.get(id) for id in ids}
        self.positions = sorted(int(job["queue_position"]) for job in queued.values())
        self.order = sorted(ids, key=lambda id: int(queued[id]["queue_position"]))
        gate.touch()
        self.jobs = [cluster.wait(id) for id in self.order]
        cluster.wait(first)

    def intervals(self):
        """{(job, rank): (begin, end)}, from the lines recorded by the ranks."""
        times = {}
        for line in self.record.read_text().splitlines():
            job, rank, time, what = line.split()
            assert times.setdefault((job, int(rank)), {}).setdefault(what, float(time)) == float(time), line
        return {key: (t["begin"], t["end"]) for key, t in times.items()}

    def most_at_once(self):
        changes = []
        for begin, end in self.intervals().values():
            changes += [(begin, 1), (end, -1)]
        running = most = 0
        for _, change in sorted(changes):
            running += change
            most = max(most, running)
        return most

    def placed_at(self, id):
        events = json.loads(self.cluster.muster("describe", id, "--events", "-o", "json").stdout)["events"]
        placed = [parse_time(e["time"]) for e in events if e["type"] == "Placed"]
        assert len(placed) == 1, events
        return placed[0]

    def tenancies(self):
        """[(node, slot, from, to, job)]: from placement by the coordinator until the rank exited."""
        found = []
        for id in self.order:
            placed = self.placed_at(id)
            for rank in self.cluster.describe(id)["ranks"]:
                for slot in rank["slots"]:
                    found.append((rank["node"], int(slot), placed, parse_time(rank["exit"]["time"]), id))
        return sorted(found)


class QueueTest(unittest.TestCase):
    def check_common(self, run, ranks):
        self.assertEqual(run.positions, list(range(1, JOBS + 1)))
        self.assertEqual([j["state"] for j in run.jobs], ["SUCCEEDED"] * JOBS)
        self.assertEqual([int(j["generation"]) for j in run.jobs], [1] * JOBS)
        self.assertEqual(len(run.intervals()), ranks)
        self.assertEqual(run.most_at_once(), SLOTS)  # never more, and no slot stays idle
        tenancies = run.tenancies()
        self.assertEqual(len(tenancies), ranks)
        self.assertEqual({t[:2] for t in tenancies}, {(n, s) for n in ("node-1", "node-2") for s in (0, 1)})
        for before, after in zip(tenancies, tenancies[1:]):
            if before[:2] == after[:2]:
                self.assertLessEqual(before[3], after[2], f"a slot was assigned twice: {before} and {after}")
        # Afterwards every slot is free again.
        def free():
            slots = [s for n in run.cluster.nodes() for s in n["slots"]]
            return len(slots) == SLOTS and not any(s.get("job_id") for s in slots)
        wait_until(free, 10, "every slot free")

    def test_jobs_of_one_rank_start_in_order(self):
        with Cluster(nodes=2, slots=2) as cluster:
            run = Run(cluster, [(1, 1)] * JOBS)
            self.check_common(run, JOBS)
            placed = [run.placed_at(id) for id in run.order]
            self.assertEqual(placed, sorted(placed))
            # By the ranks' clocks, too: a job overtakes another only if both start at the same
            # moment.
            began = sorted(run.order, key=lambda id: run.intervals()[id, 0][0])
            moved = [abs(began.index(id) - i) for i, id in enumerate(run.order)]
            self.assertLess(max(moved), SLOTS, list(zip(run.order, began)))

    def test_jobs_of_several_sizes(self):
        """Smaller jobs may overtake where they take no slots that are kept for a larger one."""
        with Cluster(nodes=2, slots=2) as cluster:
            shapes = [((1, 1), (2, 1), (1, 2), (2, 2))[i % 4] for i in range(JOBS)]
            run = Run(cluster, shapes)
            self.check_common(run, sum(n * r for n, r in shapes))


if __name__ == "__main__":
    unittest.main()
