// Requests to write a checkpoint, and checkpoints that could not be written.
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "coordinator/core/testing/totals.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Message = v1::CoordinatorMessage;

class CheckpointRequestsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.Join("a");
    cluster_.Join("b");
  }

  std::string Run(const v1::JobSpec& spec) {
    const std::string job = cluster_.Submit(spec);
    cluster_.BringUp(job);
    return job;
  }

  Effects Request(const std::string& job) {
    return cluster_.Step(CheckpointJob{RequestId(1000), job, {"alice"}});
  }
  absl::Status StatusOf(const std::string& job) {
    const Effects effects = Request(job);
    return effects.replies.size() == 1 ? effects.replies[0].job.status()
                                       : absl::InternalError("not one reply");
  }

  // Rank 0 reports its newest checkpoint and how many could not be written.
  void Report(const std::string& job, uint64_t step, uint64_t failures) {
    v1::RankReport report = Harness::MakeReport(0, v1::CONNECTED);
    v1::CheckpointStatus& status = *report.mutable_checkpoint();
    status.set_dir("/c");
    status.set_node("a");
    status.set_step(step);
    status.set_name("step-" + std::to_string(step));
    status.set_failures(failures);
    status.set_failed_step(failures == 0 ? 0 : step + 5);
    status.set_failure(failures == 0 ? "" : "no space left on device");
    cluster_.Report("a", job, report);
  }

  std::vector<std::string> FailureEvents(const std::string& job) {
    std::vector<std::string> messages;
    const std::vector<v1::JobEvent> listed = *cluster_.core().ListEvents(JobId(job), 0);
    for (const v1::JobEvent& event : listed) {
      if (event.type() == events::kCheckpointFailed) messages.push_back(event.message());
    }
    return messages;
  }

  Harness cluster_;
};

TEST_F(CheckpointRequestsTest, GoToTheNodeOfRankZero) {
  const std::string job = Run(MakeSpec(2));
  const Effects effects = Request(job);
  const Message* const sent = FindSent(effects, cluster_.session("a"), Message::kCheckpoint);
  ASSERT_NE(sent, nullptr);
  EXPECT_EQ(sent->checkpoint().job_id(), job);
  EXPECT_EQ(sent->checkpoint().generation(), 1u);
  EXPECT_EQ(CountSent(effects, cluster_.session("b"), Message::kCheckpoint), 0);
  ASSERT_EQ(effects.replies.size(), 1u);
  EXPECT_EQ(effects.replies[0].job->job_id(), job);
  EXPECT_EQ(cluster_.core().ListEvents(JobId(job), 0)->back().message(),
            "checkpoint requested by alice");
}

TEST_F(CheckpointRequestsTest, NeedARunningTraining) {
  const std::string command = Run(MakeCommandSpec(1));
  EXPECT_THAT(std::string(StatusOf(command).message()), HasSubstr("runs a command"));
  v1::JobSpec spec = MakeSpec(1);
  spec.mutable_train()->mutable_checkpoint()->set_keep(0);
  const std::string without = Run(spec);
  EXPECT_EQ(StatusOf(without),
            absl::FailedPreconditionError("job " + without +
                                          " writes no checkpoints: train.checkpoint.keep is 0"));
  const std::string queued = cluster_.Submit(MakeSpec(2));
  EXPECT_EQ(StatusOf(queued),
            absl::FailedPreconditionError("job " + queued +
                                          " is QUEUED; only a training that is RUNNING can write a "
                                          "checkpoint: see muster why " +
                                          queued));
  cluster_.ExitAll(without, ExitWith(0));
  cluster_.ExitAll(command, ExitWith(0));
  EXPECT_THAT(std::string(StatusOf(queued).message()), HasSubstr("is STARTING"));
  cluster_.BringUp(queued);
  EXPECT_TRUE(StatusOf(queued).ok());
  cluster_.ReportExit("a", queued, 0, ExitWith(0));
  EXPECT_THAT(std::string(StatusOf(queued).message()), HasSubstr("its rank 0 has ended"));
  cluster_.ReportExit("b", queued, 1, ExitWith(0));
  EXPECT_THAT(std::string(StatusOf(queued).message()), HasSubstr("is SUCCEEDED"));
  EXPECT_TRUE(absl::IsNotFound(StatusOf("no-such-job")));
}

TEST_F(CheckpointRequestsTest, NeedTheNodeOfRankZero) {
  const std::string job = Run(MakeSpec(1));
  cluster_.CloseStream("a");
  EXPECT_EQ(StatusOf(job), absl::UnavailableError("node a, which runs rank 0 of job " + job +
                                                  ", is not connected; try again"));
}

TEST_F(CheckpointRequestsTest, FailuresAreInTheStatusAndTheEvents) {
  const std::string job = Run(MakeSpec(1));
  Report(job, 20, 0);
  EXPECT_EQ(cluster_.Get(job).checkpoint().name(), "step-20");
  Report(job, 20, 1);
  EXPECT_THAT(FailureEvents(job),
              ElementsAre("the checkpoint of step 25 cannot be written to /c on a: no "
                          "space left on device; 1 failure in this generation"));
  Report(job, 20, 1);  // reports are repeated
  EXPECT_EQ(testing::TotalOf(cluster_.core().TakeStats(), "muster_job_checkpoint_failures_total"),
            1);
  // Events only when the number has doubled.
  for (uint64_t failures = 2; failures <= 9; ++failures) Report(job, 30, failures);
  EXPECT_EQ(FailureEvents(job).size(), 4u);
  EXPECT_THAT(FailureEvents(job).back(), HasSubstr("8 failures in this generation"));
  EXPECT_EQ(testing::TotalOf(cluster_.core().TakeStats(), "muster_job_checkpoint_failures_total"),
            9);
  cluster_.Restart();
  EXPECT_EQ(cluster_.Get(job).checkpoint().failures(), 9u);
  EXPECT_EQ(cluster_.Get(job).checkpoint().failure(), "no space left on device");
}

// The next generation may be on another node, whose disk is not full.
TEST_F(CheckpointRequestsTest, NextGenerationKeepsTheCheckpointButNotTheFailures) {
  const std::string job = Run(MakeSpec(1));
  Report(job, 20, 2);
  ASSERT_TRUE(cluster_.Requeue(job).ok());
  v1::ExitInfo saved = ExitWith(0);
  saved.set_stopped_by_worker(true);
  cluster_.ExitAll(job, saved);
  ASSERT_EQ(cluster_.Get(job).generation(), 2u);
  const v1::CheckpointStatus status = cluster_.Get(job).checkpoint();
  EXPECT_EQ(status.dir(), "/c");
  EXPECT_EQ(status.step(), 20u);
  EXPECT_EQ(status.name(), "step-20");
  EXPECT_EQ(status.failures(), 0u);
  EXPECT_EQ(status.failure(), "");
  cluster_.BringUp(job);
  Report(job, 20, 1);
  EXPECT_EQ(FailureEvents(job).size(), 2u);
}

}  // namespace
}  // namespace muster::core::testing
