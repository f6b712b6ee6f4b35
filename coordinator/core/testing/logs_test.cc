// The ends of exited ranks' logs, which the coordinator keeps.
#include <string>
#include <utility>

#include "common/limits.h"
#include "coordinator/core/core.h"
#include "coordinator/core/testing/harness.h"
#include "coordinator/core/testing/totals.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using testing::Harness;
using ::testing::HasSubstr;
using testing::MakeCommandSpec;
using ::testing::Not;

class LogsTest : public ::testing::Test {
 protected:
  LogsTest() {
    cluster_.Join("a");
    cluster_.Join("b");
    job_ = cluster_.Submit(MakeCommandSpec(2));
    cluster_.BringUp(job_);
  }
  void SendTail(const std::string& node, uint32_t rank, uint64_t generation = 1) {
    v1::WorkerMessage message;
    v1::LogTail& tail = *message.mutable_log_tail();
    tail.set_job_id(job_);
    tail.set_generation(generation);
    tail.set_rank(rank);
    tail.mutable_stdout_end()->set_data("the end\n");
    cluster_.SendMessage(node, message);
  }
  absl::StatusOr<Core::KeptLog> Find(uint32_t rank, uint64_t generation = 0) {
    return cluster_.core().FindLogTail(JobId(job_), Generation(generation), Rank(rank));
  }

  Harness cluster_;
  std::string job_;
};

TEST_F(LogsTest, EndOfALogOutlivesItsNodeAndTheCoordinator) {
  cluster_.ExitAll(job_, testing::ExitWith(0));
  ASSERT_EQ(cluster_.State(job_), v1::SUCCEEDED);
  SendTail("b", 1);
  cluster_.CloseStream("b");
  cluster_.Step(RemoveNode{RequestId(900), NodeName("b")});
  EXPECT_TRUE(
      absl::IsUnavailable(cluster_.core().FindRank(JobId(job_), Generation(1), Rank(1)).status()));
  cluster_.Restart();
  const absl::StatusOr<Core::KeptLog> kept = Find(1);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->tail.stdout_end().data(), "the end\n");
  EXPECT_EQ(kept->node, NodeName("b"));
  EXPECT_TRUE(absl::IsNotFound(Find(0).status()));
  EXPECT_TRUE(absl::IsOutOfRange(Find(2).status()));
  EXPECT_TRUE(absl::IsNotFound(Find(1, 2).status()));
}

TEST_F(LogsTest, IgnoresLogsOfOtherNodesRanks) {
  SendTail("a", 1);
  SendTail("a", 0, /*generation=*/2);
  EXPECT_TRUE(absl::IsNotFound(Find(1).status()));
  EXPECT_TRUE(absl::IsNotFound(Find(0).status()));
  SendTail("a", 0);
  EXPECT_TRUE(Find(0).ok());
}

TEST_F(LogsTest, EndsAreDeletedWithTheirJob) {
  SendTail("a", 0);
  cluster_.ExitAll(job_, testing::ExitWith(0));
  cluster_.Step(RemoveJob{RequestId(900), job_, Actor{"root", true}});
  cluster_.Run(absl::Milliseconds(100), {"a", "b"});
  for (const auto& [key, value] : cluster_.records()) EXPECT_THAT(key, Not(HasSubstr("log/")));
}

// A coordinator that ends while it deletes a job continues after its restart.
TEST_F(LogsTest, DeletionContinuesAfterRestart) {
  SendTail("a", 0);
  cluster_.ExitAll(job_, testing::ExitWith(0));
  cluster_.Step(RemoveJob{RequestId(900), job_, Actor{"root", true}});
  cluster_.Restart();
  cluster_.Join("a", 1, 2);
  cluster_.Run(absl::Milliseconds(100), {"a"});
  for (const auto& [key, value] : cluster_.records()) EXPECT_THAT(key, Not(HasSubstr("log/")));
}

TEST_F(LogsTest, DroppedEndIsCountedAndNamed) {
  v1::WorkerMessage message;
  v1::LogTail& tail = *message.mutable_log_tail();
  tail.set_job_id(job_);
  tail.set_generation(1);
  tail.set_rank(1);
  tail.mutable_stdout_end()->set_data(std::string(limits::kLogTailBytes + 1, 'x'));
  cluster_.SendMessage("b", message);
  EXPECT_TRUE(absl::IsNotFound(Find(1).status()));
  EXPECT_THAT(cluster_.Get(job_).warnings(),
              ElementsAre(HasSubstr("rank 1: the end of its log exceeds 16384 bytes")));
  EXPECT_EQ(testing::TotalOf(cluster_.core().TakeStats(), "muster_quarantined_reports_total",
                             {"log_tail"}),
            1);
}

}  // namespace
}  // namespace muster::core
