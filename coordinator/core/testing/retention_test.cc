// Retention of finished jobs, and the deletion of all their records.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"
#include "coordinator/core/records.h"
#include "coordinator/core/testing/harness.h"
#include "coordinator/core/testing/totals.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::AnyOf;
using testing::CountSent;
using ::testing::Each;
using testing::ExitWith;
using testing::Harness;
using ::testing::HasSubstr;
using ::testing::Key;
using testing::MakeCommandSpec;
using testing::MakeSpec;
using ::testing::StartsWith;
using Message = v1::CoordinatorMessage;

Options Keep(size_t jobs, absl::Duration age = absl::InfiniteDuration()) {
  Options options = Harness::DefaultOptions();
  options.keep_jobs = jobs;
  options.keep_jobs_for = age;
  return options;
}

// Submits a job and runs it to its end on node "a".
std::string RunJob(Harness& cluster) {
  const std::string job = cluster.Submit(MakeCommandSpec(1));
  cluster.ReportPhaseOfAll(job, v1::STARTED);
  cluster.ExitAll(job, ExitWith(0));
  EXPECT_EQ(cluster.State(job), v1::SUCCEEDED);
  return job;
}

bool Knows(Harness& cluster, const std::string& job) { return cluster.core().ResolveJob(job).ok(); }

size_t RecordsOf(const Harness& cluster, const std::string& job) {
  const auto& records = cluster.records();
  return std::count_if(records.begin(), records.end(), [&](const auto& record) {
    return absl::StrContains(absl::StrCat(record.first, "/"), absl::StrCat("/", job, "/"));
  });
}

TEST(Retention, DeletesOldestFinishedJobs) {
  Harness cluster(Keep(2));
  cluster.Join("a");
  std::vector<std::string> jobs;
  for (int i = 0; i < 4; ++i) {
    jobs.push_back(RunJob(cluster));
    cluster.Run(absl::Seconds(1), {"a"});
  }
  cluster.Run(absl::Minutes(2), {"a"});
  EXPECT_FALSE(Knows(cluster, jobs[0]));
  EXPECT_FALSE(Knows(cluster, jobs[1]));
  EXPECT_TRUE(Knows(cluster, jobs[2]));
  EXPECT_TRUE(Knows(cluster, jobs[3]));
  EXPECT_EQ(RecordsOf(cluster, jobs[0]), 0u);
  EXPECT_EQ(RecordsOf(cluster, jobs[1]), 0u);
  // The job, its spec, its generation, its node's placement, its history and its events.
  EXPECT_EQ(RecordsOf(cluster, jobs[2]), 5 + cluster.EventTypes(jobs[2]).size());
  const absl::Status gone = cluster.core().ResolveJob(jobs[0]).status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(gone.message(),
            absl::StrCat("no job ", jobs[0],
                         " (the coordinator keeps at most 2 finished jobs, within its "
                         "--job-memory)"));
}

TEST(Retention, KeepsEveryFinishedJobForAMinute) {
  Harness cluster(Keep(0));
  cluster.Join("a");
  const std::string job = RunJob(cluster);
  cluster.Run(absl::Seconds(59), {"a"});
  EXPECT_TRUE(Knows(cluster, job));
  cluster.Run(absl::Seconds(2), {"a"});
  EXPECT_FALSE(Knows(cluster, job));
  EXPECT_EQ(RecordsOf(cluster, job), 0u);
}

TEST(Retention, IdleCoordinatorDeletesJobs) {
  Harness cluster(Keep(10, absl::Hours(48)));
  const std::string job = cluster.Submit(MakeSpec(1));
  ASSERT_TRUE(cluster.Cancel(job).ok());
  EXPECT_EQ(cluster.core().NextDeadline(), cluster.now().steady + absl::Hours(48));
  cluster.TickAtDeadline();
  EXPECT_FALSE(Knows(cluster, job));
  EXPECT_EQ(cluster.core().NextDeadline(), SteadyTime::Infinite());
}

TEST(Retention, KeepsUnfinishedJobs) {
  Harness cluster(Keep(0, absl::ZeroDuration()));
  cluster.Join("a");
  const std::string running = cluster.Submit(MakeSpec(1));
  cluster.BringUp(running);
  const std::string queued = cluster.Submit(MakeSpec(1));
  const std::string held = cluster.Submit(MakeSpec(1));
  ASSERT_TRUE(cluster.Hold(held).ok());
  cluster.Run(absl::Hours(1), {"a"});
  EXPECT_EQ(cluster.State(running), v1::RUNNING);
  EXPECT_EQ(cluster.State(queued), v1::QUEUED);
  EXPECT_EQ(cluster.State(held), v1::HELD);
}

TEST(Retention, DeletesIdempotencyKeyWithJob) {
  Harness cluster(Keep(0));
  const std::string first = cluster.Submit(MakeSpec(1), "nightly");
  ASSERT_TRUE(cluster.Cancel(first).ok());
  EXPECT_EQ(cluster.Submit(MakeSpec(1), "nightly"), first);
  cluster.Run(absl::Minutes(2));
  EXPECT_NE(cluster.Submit(MakeSpec(1), "nightly"), first);
}

TEST(Retention, ReturningWorkerReceivesForget) {
  Harness cluster(Keep(0));
  cluster.Join("a");
  cluster.Join("b");
  v1::JobSpec spec = MakeCommandSpec(2);
  spec.mutable_restart()->set_max(0);
  const std::string job = cluster.Submit(spec);
  cluster.ReportPhaseOfAll(job, v1::STARTED);
  const v1::GenerationReport inventory =
      cluster.MakeInventory(job, {Harness::MakeReport(1, v1::EXITED)});
  cluster.CloseStream("b");
  cluster.ReportExit("a", job, 0, ExitWith(1));
  cluster.Run(absl::Minutes(5), {"a"});
  ASSERT_FALSE(Knows(cluster, job));
  v1::Hello hello = cluster.MakeHello("b", 1);
  *hello.add_inventory() = inventory;
  EXPECT_EQ(CountSent(cluster.Open(hello), cluster.session("b"), Message::kForget), 1);
}

// A job with `events` events that finished first, one that finished after it, and the store.
struct LongJob {
  explicit LongJob(size_t events, size_t keep) : cluster(Keep(keep)) {
    job = cluster.Submit(MakeSpec(1));
    records = cluster.records();
    Core& core = cluster.core();
    for (size_t i = 1; i + 1 < events; ++i) {
      Apply(i % 2 == 1 ? core.Step(HoldJob{RequestId(i), job}, cluster.now())
                       : core.Step(ReleaseJob{RequestId(i), job}, cluster.now()));
    }
    Apply(core.Step(CancelJob{RequestId(1), job, std::nullopt}, cluster.now()));
  }
  // Returns the number of deleted records.
  size_t Apply(const Effects& effects) {
    size_t deleted = 0;
    for (const store::Mutation& write : effects.writes) {
      if (write.value.has_value()) {
        records[write.key] = *write.value;
      } else {
        deleted += records.erase(write.key);
      }
    }
    return deleted;
  }
  std::unique_ptr<Core> Load(Effects& effects) const {
    std::vector<store::Record> stored;
    for (const auto& [key, value] : records) stored.push_back({key, value});
    auto core = std::make_unique<Core>(Keep(0));
    absl::StatusOr<Effects> loaded = core->Load(stored, cluster.now());
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (loaded.ok()) effects = *std::move(loaded);
    return core;
  }

  Harness cluster;
  std::string job;
  std::map<std::string, std::string> records;
};

// Matches the keys of records that do not belong to a job.
auto IsKept() { return AnyOf(StartsWith("meta/"), StartsWith("start/"), StartsWith("owner/")); }

TEST(Retention, StepDeletesBoundedNumberOfRecords) {
  LongJob long_job(2000, /*keep=*/0);
  // The job, its spec, its events, its owner, and four records about the store.
  ASSERT_EQ(long_job.records.size(), 2007u);
  Core& core = long_job.cluster.core();
  Time now = long_job.cluster.now();
  now = {now.steady + absl::Minutes(1), now.wall + absl::Minutes(1)};
  int steps = 0;
  while (core.NextDeadline() <= now.steady) {
    const size_t before = long_job.records.size();
    const size_t deleted = long_job.Apply(core.Step(Tick{}, now));
    EXPECT_LE(deleted, 256u);
    ASSERT_EQ(long_job.records.size(), before - deleted);
    ASSERT_LT(++steps, 20);
    EXPECT_FALSE(core.ResolveJob(long_job.job).ok());
  }
  EXPECT_GE(steps, 8);
  EXPECT_THAT(long_job.records, Each(Key(IsKept())));
}

TEST(Retention, RestartedCoordinatorContinuesDeleting) {
  LongJob long_job(2000, /*keep=*/0);
  Time now = long_job.cluster.now();
  now = {now.steady + absl::Minutes(1), now.wall + absl::Minutes(1)};
  long_job.Apply(long_job.cluster.core().Step(Tick{}, now));
  const size_t left = long_job.records.size();
  ASSERT_GT(left, 1000u);
  ASSERT_LT(left, 2002u);
  Effects effects;
  const std::unique_ptr<Core> core = long_job.Load(effects);
  long_job.Apply(effects);
  EXPECT_FALSE(core->ResolveJob(long_job.job).ok());
  // The id is free only after all of its records are deleted.
  const Effects refused =
      core->Step(SubmitJob{RequestId(7), JobId(long_job.job), MakeSpec(1), ""}, now);
  long_job.Apply(refused);
  ASSERT_EQ(refused.replies.size(), 1u);
  EXPECT_TRUE(absl::IsAborted(refused.replies[0].job.status()));
  while (core->NextDeadline() <= now.steady) long_job.Apply(core->Step(Tick{}, now));
  EXPECT_THAT(long_job.records, Each(Key(IsKept())));
}

TEST(Retention, AppliesLowerLimitAfterRestart) {
  LongJob long_job(10, /*keep=*/1000);
  Effects effects;
  const std::unique_ptr<Core> core = long_job.Load(effects);
  long_job.Apply(effects);
  EXPECT_TRUE(core->ResolveJob(long_job.job).ok());
  Time now = long_job.cluster.now();
  now = {now.steady + absl::Minutes(1), now.wall + absl::Minutes(1)};
  ASSERT_LE(core->NextDeadline(), now.steady);
  long_job.Apply(core->Step(Tick{}, now));
  EXPECT_FALSE(core->ResolveJob(long_job.job).ok());
}

// -------------------------------------------------------------------------------------------------
// Limit on the total number of jobs.

// Returns kJobs jobs, of which the last `finished` ended `age` ago.
std::vector<store::Record> FullStore(size_t finished, absl::Time finish_time) {
  std::vector<store::Record> records = {{PutSchema().key, *PutSchema().value}};
  for (size_t i = 0; i < limits::kJobs; ++i) {
    v1::JobRecord record;
    record.set_job_id(absl::StrCat("job-", i));
    record.set_state(i < limits::kJobs - finished ? v1::STORED_HELD : v1::STORED_CANCELLED);
    if (record.state() == v1::STORED_CANCELLED)
      *record.mutable_finish_time() = ToProto(finish_time);
    record.set_queue_sequence(i);
    records.push_back({Put(record).key, *Put(record).value});
  }
  return records;
}

TEST(Retention, FullCoordinatorDeletesToMakeRoomAfterAMinute) {
  const Time now = Now();
  Core core(Keep(limits::kJobs));
  ASSERT_TRUE(core.Load(FullStore(/*finished=*/1, now.wall), now).ok());
  const auto submit = [&](const std::string& job, absl::Duration later) {
    const SubmitJob event{RequestId(1), JobId(job), MakeSpec(1), ""};
    return core.Step(event, {now.steady + later, now.wall + later}).replies.at(0).job.status();
  };
  const JobId finished(absl::StrCat("job-", limits::kJobs - 1));
  EXPECT_TRUE(absl::IsResourceExhausted(submit("new", absl::Seconds(59))));
  EXPECT_TRUE(core.ResolveJob(finished.value()).ok());
  EXPECT_TRUE(submit("new", absl::Minutes(1)).ok());
  EXPECT_FALSE(core.ResolveJob(finished.value()).ok());
  EXPECT_EQ(testing::TotalOf(core.TakeStats(), "muster_jobs_evicted_total", {"count"}), 1);
  const absl::Status refused = submit("more", absl::Minutes(1));
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(absl::StrCat("has ", limits::kJobs, " jobs that are unfinished")));
}

}  // namespace
}  // namespace muster::core
