#include "coordinator/core/owners/owner_table.h"

#include <algorithm>

#include "common/time/proto_time.h"
#include "coordinator/core/records.h"
#include "coordinator/core/testing/parts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::HasSubstr;

class OwnerTableTest : public ::testing::Test {
 protected:
  static Options MakeOptions() {
    Options options;
    options.scheduler.default_limits.queued_jobs = 2;
    return options;
  }
  v1::Job JobOf(const std::string& owner) const {
    v1::Job job;
    job.set_job_id(owner + "-job");
    job.set_owner(owner);
    *job.mutable_submit_time() = ToProto(context_.now.wall);
    return job;
  }
  // Runs a job of one CPU slot for an hour.
  void RunJob(const std::string& owner, v1::JobState state = v1::SUCCEEDED) {
    v1::Job job = JobOf(owner);
    const SteadyTime submitted = context_.now.steady;
    owners_.OnStart(job, {1, 0}, submitted);
    *job.mutable_start_time() = ToProto(context_.now.wall);
    testing::Advance(context_, absl::Hours(1));
    owners_.OnEnd(job, {1, 0}, Ledger(), context_.now.steady);
    owners_.OnFinish(job, submitted, state);
  }
  std::vector<std::string> WrittenKeys() {
    owners_.WriteChanges();
    std::vector<std::string> keys;
    for (const store::Mutation& write : context_.effects.writes) {
      keys.push_back(write.value.has_value() ? write.key : "-" + write.key);
    }
    context_.effects.writes.clear();
    return keys;
  }

  Context context_ = testing::MakeContext(MakeOptions());
  OwnerTable owners_{context_, /*max_owners=*/3};
};

TEST_F(OwnerTableTest, LimitsQueuedJobsOfOneOwner) {
  const Actor alice{"alice", false};
  EXPECT_TRUE(owners_.CheckSubmit({}, alice, 2).ok());
  owners_.OnQueued(JobOf("alice"));
  EXPECT_TRUE(owners_.CheckSubmit({}, alice).ok());
  owners_.OnQueued(JobOf("alice"));
  const absl::Status refused = owners_.CheckSubmit({}, alice);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(refused.message(),
            "alice has 2 queued jobs, and 1 job more would exceed the limit of 2 for one owner; "
            "wait for some to start or cancel some");
  EXPECT_TRUE(owners_.CheckSubmit({}, {"bob", false}).ok());
  owners_.OnUnqueued(JobOf("alice"));
  EXPECT_TRUE(owners_.CheckSubmit({}, alice).ok());
}

TEST_F(OwnerTableTest, ChecksPriorityClass) {
  v1::JobSpec spec;
  spec.set_priority_class("critical");
  EXPECT_TRUE(absl::IsPermissionDenied(owners_.CheckSubmit(spec, {"alice", false})));
  EXPECT_TRUE(owners_.CheckSubmit(spec, {"root", true}).ok());
}

TEST_F(OwnerTableTest, WritesRecordsOnlyWhenGenerationsStartAndEnd) {
  const v1::Job job = JobOf("alice");
  owners_.OnQueued(job);
  EXPECT_THAT(WrittenKeys(), ::testing::IsEmpty());
  owners_.OnUnqueued(job);
  owners_.OnStart(job, {1, 0}, context_.now.steady);
  EXPECT_THAT(WrittenKeys(), ::testing::ElementsAre("owner/alice"));
  testing::Advance(context_, absl::Hours(5));
  EXPECT_GT(owners_.Usage("alice", context_.now.steady), 0);
  EXPECT_THAT(WrittenKeys(), ::testing::IsEmpty());
  owners_.OnEnd(job, {1, 0}, Ledger(), context_.now.steady);
  owners_.OnFinish(job, context_.now.steady, v1::SUCCEEDED);
  EXPECT_THAT(WrittenKeys(), ::testing::ElementsAre("owner/alice"));
}

TEST_F(OwnerTableTest, ForgetsOwnerWithLeastUse) {
  owners_.OnQueued(JobOf("waiting"));
  RunJob("little");
  RunJob("much");
  RunJob("much");
  WrittenKeys();
  RunJob("new");
  EXPECT_THAT(WrittenKeys(), ::testing::ElementsAre("-owner/little", "owner/new"));
  EXPECT_EQ(owners_.size(), 3u);
  EXPECT_EQ(owners_.Usage("little", context_.now.steady), 0);
}

TEST_F(OwnerTableTest, ListsUse) {
  RunJob("alice");
  RunJob("bob");
  owners_.OnQueued(JobOf("bob"));
  owners_.OnStart(JobOf("carol"), {2, 4}, context_.now.steady);
  const std::vector<v1::OwnerUse> uses = owners_.Uses(context_.now);
  ASSERT_EQ(uses.size(), 3u);
  EXPECT_EQ(uses[0].owner(), "alice");
  EXPECT_EQ(uses[0].share_ratio(), 0);  // it has no jobs
  EXPECT_NEAR(uses[0].usage_ratio() + uses[1].usage_ratio(), 1, 1e-9);
  EXPECT_GT(uses[1].usage(), uses[0].usage()) << "older use counts less";
  EXPECT_EQ(uses[1].queued_jobs(), 1u);
  EXPECT_EQ(uses[1].queued_jobs_limit(), 2u);
  EXPECT_EQ(uses[1].share_ratio(), 0.5);
  EXPECT_EQ(uses[2].running_slots(), 6u);
}

TEST_F(OwnerTableTest, ReportsUseByOwnerAndInTotal) {
  RunJob("alice");
  RunJob("alice", v1::FAILED);
  RunJob("bob", v1::CANCELLED);
  owners_.OnFinish(JobOf("alice"), context_.now.steady, v1::TIMED_OUT);
  const v1::GetReportResponse report =
      owners_.Report(7, {{"bob", context_.now.steady}}, {}, {2, 0}, context_.now);
  ASSERT_EQ(report.owners_size(), 2);
  EXPECT_EQ(report.owners(0).owner(), "alice");
  EXPECT_DOUBLE_EQ(report.owners(0).cpu_slot_seconds(), 7200);
  EXPECT_EQ(report.owners(0).jobs_submitted(), 3u);
  EXPECT_EQ(report.owners(0).jobs_timed_out(), 1u);
  EXPECT_EQ(report.owners(0).jobs_succeeded(), 1u);
  EXPECT_EQ(report.owners(0).jobs_failed(), 1u);
  EXPECT_EQ(FromProto(report.owners(0).median_wait()), absl::Seconds(1));
  EXPECT_EQ(report.owners(1).owner(), "bob");
  EXPECT_EQ(report.owners(1).jobs_submitted(), 2u) << "the waiting job counts";
  EXPECT_EQ(report.owners(1).jobs_failed(), 0u);
  EXPECT_EQ(report.owners(1).jobs_cancelled(), 1u);
  EXPECT_EQ(report.total().jobs_submitted(), 5u);
  EXPECT_DOUBLE_EQ(report.total().cpu_slot_seconds(), 3 * 3600);
  const absl::Duration time = context_.now.wall - FromProto(report.since());
  EXPECT_NEAR(report.cpu_utilization_ratio(), 3 * 3600 / (2 * absl::ToDoubleSeconds(time)), 1e-9);
  EXPECT_EQ(report.gpu_utilization_ratio(), 0);
}

TEST_F(OwnerTableTest, ReportsOnlyTheNewestDays) {
  RunJob("alice");
  testing::Advance(context_, absl::Hours(48));
  EXPECT_EQ(owners_.Report(2, {}, {}, {}, context_.now).owners_size(), 0);
  EXPECT_EQ(owners_.Report(4, {}, {}, {}, context_.now).owners_size(), 1);
}

TEST_F(OwnerTableTest, WallClockThatIsSetErasesNoDays) {
  RunJob("alice");
  const absl::Time right = context_.now.wall;
  context_.now.wall += absl::Hours(24 * 3650);
  RunJob("alice");
  context_.now.wall = right - absl::Hours(24 * 3650);
  RunJob("alice");
  context_.now.wall = right + absl::Hours(2);
  const v1::GetReportResponse report = owners_.Report(7, {}, {}, {1, 0}, context_.now);
  EXPECT_DOUBLE_EQ(report.total().cpu_slot_seconds(), 3 * 3600);
  EXPECT_EQ(report.total().jobs_succeeded(), 3u);
}

TEST_F(OwnerTableTest, ReportsGenerationsThatStillRun) {
  owners_.OnStart(JobOf("alice"), {0, 8}, context_.now.steady);
  testing::Advance(context_, absl::Minutes(10));
  const v1::GetReportResponse report = owners_.Report(1, {}, {}, {0, 8}, context_.now);
  EXPECT_DOUBLE_EQ(report.total().gpu_slot_seconds(), 8 * 600);
}

TEST_F(OwnerTableTest, CountsJobThatNeverStarted) {
  const v1::Job job = JobOf("alice");
  owners_.OnFinish(job, context_.now.steady, v1::CANCELLED);
  const v1::GetReportResponse report = owners_.Report(1, {}, {}, {}, context_.now);
  EXPECT_EQ(report.total().jobs_submitted(), 1u);
  EXPECT_EQ(report.total().jobs_cancelled(), 1u);
  EXPECT_FALSE(report.total().has_median_wait());
}

}  // namespace
}  // namespace muster::core
