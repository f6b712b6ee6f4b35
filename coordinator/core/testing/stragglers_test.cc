// Stragglers: the events, what clients see, restarts of the coordinator, and reports that no
// healthy rank sends.
#include <algorithm>
#include <limits>

#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "coordinator/core/testing/totals.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::Harness;
using ::testing::HasSubstr;
using testing::MakeSpec;

// Ranks 0 and 1 run on node a, 2 and 3 on node b.
class StragglersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::string& node : {"a", "b"}) cluster_.Join(node, 2);
    job_ = cluster_.Submit(MakeSpec(2, 2));
    cluster_.BringUp(job_);
  }

  v1::RankReport Report(uint32_t rank) const {
    v1::RankReport report = Harness::MakeReport(rank, v1::CONNECTED);
    report.mutable_progress()->set_phase("training");
    report.mutable_progress()->set_step(step_);
    return report;
  }
  // Runs windows of 4 steps, in which the step of rank 3 takes `factor` times as long.
  void Run(int windows, double factor) {
    for (int i = 0; i < windows; ++i) {
      step_ += 4;
      cluster_.Advance(absl::Milliseconds(400));
      for (uint32_t rank = 0; rank < 4; ++rank) {
        v1::RankReport report = Report(rank);
        v1::StepWindow& window = *report.mutable_progress()->mutable_step_windows()->add_windows();
        window.set_last_step(step_);
        window.set_steps(4);
        window.set_compute_seconds(static_cast<float>(rank == 3 ? 0.08 * factor : 0.08));
        window.set_step_seconds(0.1f);
        cluster_.Report(rank < 2 ? "a" : "b", job_, report);
      }
    }
  }
  int CountEvents(const std::string& type) const {
    const std::vector<std::string> types = cluster_.EventTypes(job_);
    return static_cast<int>(std::count(types.begin(), types.end(), type));
  }
  std::string LastEvent() const {
    return cluster_core().ListEvents(JobId(job_), 0)->back().message();
  }
  const Core& cluster_core() const { return const_cast<Harness&>(cluster_).core(); }

  Harness cluster_;
  std::string job_;
  uint64_t step_ = 0;
};

TEST_F(StragglersTest, AreNamedUntilTheyAreNoLongerSlow) {
  Run(40, 1);
  EXPECT_EQ(CountEvents(events::kStragglerFound), 0);
  Run(30, 1.21);
  const v1::Job job = cluster_.Get(job_);
  ASSERT_EQ(job.stragglers_size(), 1);
  EXPECT_EQ(job.stragglers(0).rank(), 3u);
  EXPECT_EQ(job.stragglers(0).node(), "b");
  EXPECT_EQ(job.stragglers(0).phase(), "compute");
  EXPECT_EQ(job.stragglers(0).since_step(), 161u);
  EXPECT_EQ(
      job.stragglers(0).message(),
      "rank 3 on b is 21 % slower than the median of its peers in compute since step 161; all "
      "ranks wait for it");
  EXPECT_NEAR(job.slowdown(), 1.21, 0.01);
  EXPECT_NEAR(job.ranks(3).slowdown(), 1.21, 0.01);
  EXPECT_NEAR(job.ranks(0).slowdown(), 1, 0.01);
  // Windows are for the coordinator only.
  EXPECT_FALSE(job.progress().has_step_windows());
  EXPECT_FALSE(job.ranks(3).progress().has_step_windows());
  EXPECT_EQ(CountEvents(events::kStragglerFound), 1);
  EXPECT_EQ(LastEvent(), job.stragglers(0).message());

  Run(30, 1);
  EXPECT_EQ(cluster_.Get(job_).stragglers_size(), 0);
  EXPECT_EQ(CountEvents(events::kStragglerFound), 1);
  EXPECT_EQ(CountEvents(events::kStragglerEnded), 1);
  EXPECT_THAT(LastEvent(), HasSubstr("rank 3 on b is no longer slower than its peers"));
  const Stats stats = cluster_.core().TakeStats();
  EXPECT_EQ(testing::TotalOf(stats, "muster_stragglers_total", {"compute"}), 1);
  EXPECT_EQ(testing::TotalOf(stats, "muster_stragglers_total", {"input"}), 0);
}

TEST_F(StragglersTest, AreReportedOnceAcrossARestartOfTheCoordinator) {
  Run(40, 1.3);
  ASSERT_EQ(cluster_.Get(job_).stragglers_size(), 1);
  cluster_.Restart();
  EXPECT_EQ(cluster_.Get(job_).stragglers_size(), 1);
  for (const uint32_t first : {0u, 2u}) {
    v1::Hello hello = cluster_.MakeHello(first == 0 ? "a" : "b", 2);
    *hello.add_inventory() = cluster_.MakeInventory(job_, {Report(first), Report(first + 1)});
    cluster_.Open(hello);
  }
  ASSERT_EQ(cluster_.State(job_), v1::RUNNING);
  Run(20, 1.3);
  EXPECT_EQ(CountEvents(events::kStragglerFound), 1);
  Run(20, 1);
  EXPECT_EQ(CountEvents(events::kStragglerEnded), 1);
  EXPECT_EQ(cluster_.Get(job_).stragglers_size(), 0);
}

TEST_F(StragglersTest, EndWithTheGeneration) {
  Run(40, 1.3);
  ASSERT_EQ(cluster_.Get(job_).stragglers_size(), 1);
  EXPECT_TRUE(cluster_.Cancel(job_).ok());
  EXPECT_EQ(cluster_.Get(job_).stragglers_size(), 0);
  EXPECT_EQ(cluster_.Get(job_).slowdown(), 0);
}

TEST_F(StragglersTest, HaveFewEvents) {
  for (int i = 0; i < 200; ++i) {
    Run(10, 1.3);
    Run(10, 1);
  }
  EXPECT_LE(CountEvents(events::kStragglerFound) + CountEvents(events::kStragglerEnded), 64);
}

TEST_F(StragglersTest, DoNotFollowFromReportsOfOneRank) {
  for (uint64_t i = 1; i < 1000; ++i) {
    v1::RankReport report = Report(1);
    v1::StepWindow& window = *report.mutable_progress()->mutable_step_windows()->add_windows();
    window.set_last_step(std::numeric_limits<uint64_t>::max() / i);
    window.set_steps(static_cast<uint32_t>(i));
    window.set_compute_seconds(std::numeric_limits<float>::max());
    cluster_.Report("a", job_, report);
  }
  EXPECT_EQ(cluster_.Get(job_).stragglers_size(), 0);
  EXPECT_EQ(CountEvents(events::kStragglerFound), 0);
}

}  // namespace
}  // namespace muster::core
