// Job.checkpoint: where the job's newest checkpoint is and which one it resumed from.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "gtest/gtest.h"

namespace muster::core::testing {
namespace {

using Message = v1::CoordinatorMessage;

class ResumeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.Join("a");
    cluster_.Join("b");
    job_ = cluster_.Submit(MakeSpec(2));
    cluster_.ReportPhaseOfAll(job_, v1::STARTED);
  }

  // Rank 0, on node a, reports its newest checkpoint.
  void Report(uint64_t step, bool shared) {
    v1::RankReport report = Harness::MakeReport(0, v1::STARTED);
    v1::CheckpointStatus& status = *report.mutable_checkpoint();
    status.set_dir("/c");
    status.set_shared(shared);
    if (!shared) status.set_node("a");
    status.set_step(step);
    cluster_.Report("a", job_, report);
  }

  // Both ranks join; rank 1 has a checkpoint that `writer` wrote.
  Effects Join(uint64_t step, const std::string& writer) {
    v1::RankReport report = Harness::MakeReport(1, v1::JOINED);
    v1::JoinInfo& join = *report.mutable_join();
    join.set_has_checkpoint(true);
    join.set_checkpoint_step(step);
    join.set_checkpoint_path("/" + writer + "/step");
    join.set_checkpoint_job_id(writer);
    cluster_.Report("b", job_, report);
    return cluster_.Report("a", job_, Harness::MakeReport(0, v1::JOINED));
  }

  v1::CheckpointStatus Status() const { return cluster_.Get(job_).checkpoint(); }
  int64_t Warnings() const {
    const std::vector<std::string> types = cluster_.EventTypes(job_);
    return std::count(types.begin(), types.end(), events::kCheckpointsOnOneNode);
  }

  Harness cluster_;
  std::string job_;
};

TEST_F(ResumeTest, ShowsNewestCheckpointAfterRestartOfCoordinator) {
  EXPECT_FALSE(cluster_.Get(job_).has_checkpoint());
  Report(0, /*shared=*/true);
  Report(40, /*shared=*/true);
  cluster_.Restart();
  EXPECT_EQ(Status().dir(), "/c");
  EXPECT_TRUE(Status().shared());
  EXPECT_TRUE(Status().node().empty());
  EXPECT_EQ(Status().step(), 40u);
  EXPECT_TRUE(Status().resumed_from().empty());
  EXPECT_EQ(Warnings(), 0);
}

TEST_F(ResumeTest, WarnsOnceThatOneOfSeveralNodesHasTheCheckpoints) {
  for (const uint64_t step : {0, 0, 40}) Report(step, /*shared=*/false);
  EXPECT_EQ(Status().node(), "a");
  EXPECT_EQ(Status().step(), 40u);
  EXPECT_EQ(Warnings(), 1);
}

TEST_F(ResumeTest, IgnoresStatusOfOtherRanks) {
  v1::RankReport report = Harness::MakeReport(1, v1::STARTED);
  report.mutable_checkpoint()->set_dir("/elsewhere");
  cluster_.Report("b", job_, report);
  EXPECT_FALSE(cluster_.Get(job_).has_checkpoint());
}

TEST_F(ResumeTest, NamesJobThatIsContinuedAndThenTheOwnCheckpoint) {
  Report(0, /*shared=*/true);
  const Effects joined = Join(60, "other");
  const Message* const world = FindSent(joined, cluster_.session("a"), Message::kWorld);
  ASSERT_NE(world, nullptr);
  EXPECT_EQ(world->world().resume_rank(), 1u);
  EXPECT_EQ(world->world().resume_job_id(), "other");
  EXPECT_EQ(Status().resumed_from(), "/other/step");
  EXPECT_EQ(Status().resumed_step(), 60u);
  EXPECT_EQ(Status().resumed_job_id(), "other");

  cluster_.ExitAll(job_, KilledBy(9));
  ASSERT_EQ(cluster_.Get(job_).generation(), 2u);
  cluster_.ReportPhaseOfAll(job_, v1::STARTED);
  Join(80, job_);
  EXPECT_EQ(Status().resumed_step(), 80u);
  EXPECT_EQ(Status().resumed_job_id(), job_);
  EXPECT_EQ(Status().continued_from(), "/other/step");

  cluster_.ReportPhaseOfAll(job_, v1::CONNECTED);
  v1::RankReport summary = Harness::MakeReport(0, v1::CONNECTED);
  summary.mutable_summary()->set_steps(100);
  cluster_.Report("a", job_, summary);
  cluster_.ExitAll(job_, ExitWith(0));
  const v1::Job finished = cluster_.Get(job_);
  ASSERT_EQ(finished.state(), v1::SUCCEEDED);
  EXPECT_EQ(finished.summary().resumed_from(), "/other/step");
  EXPECT_EQ(finished.summary().resumed_job_id(), "other");
}

// The decision, and what is shown of it.
TEST_F(ResumeTest, NamesTheNodesWithTheStateInMemory) {
  for (const uint32_t rank : {1u, 0u}) {
    v1::RankReport report = Harness::MakeReport(rank, v1::JOINED);
    v1::JoinInfo& join = *report.mutable_join();
    join.set_has_checkpoint(true);
    join.set_checkpoint_step(20);
    join.set_checkpoint_job_id(job_);
    v1::MemoryState& state = *join.add_memory();
    state.set_generation(1);
    state.set_step(30);
    state.set_part(1 - rank);
    state.set_parts(2);
    const Effects joined = cluster_.Report(rank == 0 ? "a" : "b", job_, report);
    if (rank == 1) continue;
    const Message* const world = FindSent(joined, cluster_.session("a"), Message::kWorld);
    ASSERT_NE(world, nullptr);
    EXPECT_EQ(world->world().resume_rank(), 1u);
    EXPECT_EQ(world->world().resume_step(), 30u);
    EXPECT_EQ(world->world().resume_generation(), 1u);
    ASSERT_EQ(world->world().resume_memory_ranks_size(), 2);
    EXPECT_EQ(world->world().resume_memory_ranks(0), 1u);
    EXPECT_EQ(world->world().resume_memory_ranks(1), 0u);
  }
  EXPECT_EQ(Status().resumed_from(), "memory of a, b");
  EXPECT_EQ(Status().resumed_step(), 30u);
}

TEST_F(ResumeTest, ForgetsResumeOfEarlierGeneration) {
  Join(60, "other");
  cluster_.ExitAll(job_, KilledBy(9));
  cluster_.BringUp(job_);
  EXPECT_TRUE(Status().resumed_from().empty());
  EXPECT_EQ(Status().resumed_step(), 0u);
}

}  // namespace
}  // namespace muster::core::testing
