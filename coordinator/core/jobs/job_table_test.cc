#include "coordinator/core/jobs/job_table.h"

#include <limits>

#include "common/limits.h"
#include "coordinator/core/testing/parts.h"
#include "coordinator/core/testing/totals.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::Advance;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::MakeContext;
using ::testing::SizeIs;
using testing::Start;
using testing::Submit;

class JobTableTest : public ::testing::Test {
 protected:
  std::vector<std::string> KeysWritten() {
    jobs_.WriteChanges();
    std::vector<std::string> keys;
    for (const store::Mutation& write : context_.effects.writes) {
      keys.push_back(absl::StrCat(write.value.has_value() ? "" : "-", write.key));
    }
    context_.effects = Effects();
    return keys;
  }
  Context context_ = MakeContext();
  Jobs jobs_{context_};
};

TEST_F(JobTableTest, SubmittedJobIsQueuedAndRecorded) {
  const Job& job = Submit(jobs_, "one");
  EXPECT_EQ(job.state(), v1::QUEUED);
  jobs_.WriteChanges();
  EXPECT_THAT(context_.effects.changed_jobs, ElementsAre(JobId("one")));
  EXPECT_EQ(testing::TotalOf(context_.stats.Take(), "muster_jobs_submitted_total"), 1);
}

TEST_F(JobTableTest, ReservedNumbersLeaveRoomForGenerations) {
  Job& job = Submit(jobs_, "one");
  ReserveGeneration(jobs_.table, JobId("one"), 7);
  EXPECT_EQ(job.NextGeneration(), Generation(8));
  for (const uint64_t number : {limits::kLargestGeneration, std::numeric_limits<uint64_t>::max()}) {
    ReserveGeneration(jobs_.table, JobId("one"), number);
    EXPECT_GT(job.NextGeneration().value(), 8u);
    EXPECT_LT(job.NextGeneration().value(), limits::kLargestGeneration - 100'000);
  }
}

TEST_F(JobTableTest, SameIdempotencyKeyReturnsSameJob) {
  const auto first = jobs_.submission.Submit({RequestId(1), JobId("one"), {}, "key"});
  const auto again = jobs_.submission.Submit({RequestId(2), JobId("two"), {}, "key"});
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->already_existed);
  EXPECT_EQ(again->job, first->job);
  EXPECT_EQ(jobs_.table.Find(JobId("two")), nullptr);
}

TEST_F(JobTableTest, RejectsDuplicateJobId) {
  Submit(jobs_, "one");
  const auto again = jobs_.submission.Submit({RequestId(2), JobId("one"), {}, ""});
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAborted);
}

TEST_F(JobTableTest, RejectsIdempotencyKeyWithAnotherSpec) {
  SubmitJob submit{RequestId(1), JobId("one"), {}, "key"};
  submit.spec_digest = "d1";
  ASSERT_TRUE(jobs_.submission.Submit(submit).ok());
  EXPECT_TRUE(jobs_.submission.Submit(submit)->already_existed);
  submit.spec_digest = "d2";
  const auto refused = jobs_.submission.Submit(submit);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(refused.status().message(),
            "idempotency key key was already used for job one with another spec; use a new key");
  // Jobs of older stores have no digest.
  jobs_.table.at(JobId("one")).submitted_digest.clear();
  EXPECT_TRUE(jobs_.submission.Submit(submit)->already_existed);
}

TEST_F(JobTableTest, ResolvesUniquePrefixes) {
  Submit(jobs_, "train-1");
  Submit(jobs_, "train-12");
  Submit(jobs_, "test-1");
  EXPECT_EQ(*jobs_.names.Resolve("te"), JobId("test-1"));
  EXPECT_EQ(*jobs_.names.Resolve("train-1"), JobId("train-1"));
  EXPECT_EQ(jobs_.names.Resolve("train").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(jobs_.names.Resolve("x").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(jobs_.names.Resolve("").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(JobTableTest, ResolvesNamesBeforePrefixes) {
  const auto submit = [this](const std::string& id, const std::string& name) {
    v1::JobSpec spec;
    spec.set_name(name);
    ASSERT_TRUE(jobs_.submission.Submit({RequestId(1), JobId(id), spec, ""}).ok());
  };
  submit("train-aaaaa", "train");
  submit("train-2-bbbbb", "train-2");
  EXPECT_EQ(*jobs_.names.Resolve("train"), JobId("train-aaaaa"));
  EXPECT_EQ(*jobs_.names.Resolve("train-2"), JobId("train-2-bbbbb"));
  submit("train-ccccc", "train");
  EXPECT_EQ(jobs_.names.Resolve("train").status().message(),
            "job train is ambiguous: it matches train-ccccc, train-aaaaa; give more of the id");
  for (int i = 0; i < 5; ++i) submit(absl::StrCat("train-d", i), "train");
  EXPECT_THAT(std::string(jobs_.names.Resolve("trai").status().message()),
              ::testing::HasSubstr("train-d0, 3 more; give more"));
}

TEST_F(JobTableTest, ListsTheNewestFirst) {
  Submit(jobs_, "a");
  Submit(jobs_, "b");
  jobs_.states.Finish(Submit(jobs_, "c"), v1::CANCELLED, reasons::kCancelledByUser, "", 1);
  v1::ListJobsRequest request;
  const auto ids = [&] {
    std::vector<std::string> ids;
    for (const Job* job : ListJobs(jobs_.table, request)) ids.push_back(job->id().value());
    return ids;
  };
  EXPECT_THAT(ids(), ElementsAre("b", "a"));
  request.set_include_finished(true);
  EXPECT_THAT(ids(), ElementsAre("c", "b", "a"));
  request.set_state(v1::QUEUED);
  EXPECT_THAT(ids(), ElementsAre("b", "a"));
}

TEST_F(JobTableTest, StepWritesEachRecordOnce) {
  Job& job = Submit(jobs_, "one");
  Start(jobs_, job, {"a", "a", "b"});
  jobs_.table.MarkJob(job);
  jobs_.table.MarkPlacement(job, 1);
  EXPECT_THAT(KeysWritten(),
              ElementsAre("spec/one/0000", "event/one/0000000001", "job/one",
                          "generation/one/0000000001", "placement/one/0000000001/0000000000",
                          "placement/one/0000000001/0000000001", "owner/"));
  EXPECT_THAT(KeysWritten(), IsEmpty());
}

TEST_F(JobTableTest, EndedGenerationMovesToPast) {
  Job& job = Submit(jobs_, "one");
  Start(jobs_, job, {"a"});
  EXPECT_THAT(jobs_.table.ActiveOn(NodeName("a")), SizeIs(1));
  EXPECT_EQ(jobs_.table.FindLiving(JobId("one"), 1, NodeName("a")), &job);
  EXPECT_EQ(jobs_.table.FindLiving(JobId("one"), 2, NodeName("a")), nullptr);
  EXPECT_EQ(jobs_.table.FindLiving(JobId("one"), 1, NodeName("b")), nullptr);
  jobs_.states.Transition(job, v1::STOPPING, "", "");
  jobs_.states.EndGeneration(job);
  EXPECT_TRUE(job.past.rbegin()->second.over());
  EXPECT_EQ(jobs_.table.FindLiving(JobId("one"), 1, NodeName("a")), nullptr);
  EXPECT_THAT(jobs_.table.active(), IsEmpty());
  EXPECT_THAT(jobs_.table.ActiveOn(NodeName("a")), IsEmpty());
  ASSERT_NE(job.FindRecord(Generation(1)), nullptr);
}

TEST_F(JobTableTest, NewGenerationClearsPreviousState) {
  Job& job = Submit(jobs_, "one");
  Start(jobs_, job, {"a"});
  job.ending = {v1::FAILED, "r", "m", absl::Seconds(1), true};
  job.suspected_failure.emplace();
  job.status.mutable_progress()->set_step(3);
  jobs_.states.Transition(job, v1::STOPPING, "", "");
  jobs_.states.EndGeneration(job);
  Start(jobs_, job, {"a"});
  EXPECT_EQ(job.status.generation(), 2u);
  EXPECT_EQ(job.ending.outcome, v1::JOB_STATE_UNSPECIFIED);
  EXPECT_FALSE(job.suspected_failure.has_value());
  EXPECT_FALSE(job.status.has_progress());
}

TEST_F(JobTableTest, BoundsHistory) {
  Job& job = Submit(jobs_, "one");
  for (size_t i = 0; i < limits::kEventsPerJob; ++i) jobs_.table.AddEvent(job, "Test", "");
  EXPECT_EQ(job.events.size(), limits::kEventsPerJob);
  EXPECT_EQ(job.events.front().sequence(), 2u);
  EXPECT_EQ(context_.effects.writes.back().key, "event/one/0000000001");
  EXPECT_FALSE(context_.effects.writes.back().value.has_value());
}

TEST(JobTableDeathTest, ForbiddenTransitionEndsProcess) {
  Context context = MakeContext();
  Jobs jobs(context);
  Job& job = Submit(jobs, "one");
  EXPECT_DEATH(jobs.states.Transition(job, v1::RUNNING, "", ""),
               "cannot go from QUEUED to RUNNING");
}

TEST(JobTableRetention, DeletesOldestFinishedJob) {
  Options options;
  options.keep_jobs = 1;
  Context context = MakeContext(options);
  Jobs jobs(context);
  for (const char* id : {"one", "two"}) {
    jobs.states.Finish(Submit(jobs, id), v1::CANCELLED, reasons::kCancelledByUser, "", 1);
    Advance(context, absl::Seconds(1));
  }
  jobs.eviction.Arm();
  EXPECT_EQ(context.timers.Next(), context.now.steady + absl::Seconds(58));
  jobs.eviction.ForgetDue();
  EXPECT_NE(jobs.table.Find(JobId("one")), nullptr);
  Advance(context, absl::Seconds(58));
  jobs.eviction.ForgetDue();
  EXPECT_EQ(jobs.table.Find(JobId("one")), nullptr);
  EXPECT_NE(jobs.table.Find(JobId("two")), nullptr);
  EXPECT_EQ(context.effects.writes.back().key, "job/one");
  EXPECT_FALSE(context.effects.writes.back().value.has_value());
}

}  // namespace
}  // namespace muster::core
