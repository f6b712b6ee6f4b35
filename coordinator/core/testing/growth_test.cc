// Elastic jobs: they shrink to the nodes that are left, and grow when further nodes are free.
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::Contains;
using testing::ExitWith;
using testing::Harness;
using ::testing::HasSubstr;
using testing::KilledBy;
using testing::MakeCommandSpec;
using testing::MakeSpec;
using ::testing::Not;

v1::ExitInfo Stopped() {
  v1::ExitInfo exit = KilledBy(SIGTERM);
  exit.set_stopped_by_worker(true);
  return exit;
}

v1::JobSpec Elastic(uint32_t min, uint32_t max) {
  v1::JobSpec spec = MakeSpec(min);
  spec.mutable_resources()->mutable_nodes()->set_max(max);
  return spec;
}

class Growth : public ::testing::Test {
 protected:
  explicit Growth(Options options = Harness::DefaultOptions()) : cluster_(std::move(options)) {}

  // Runs an elastic job on the node a.
  void RunOnOneNode(uint32_t max) {
    Join("a");
    job_ = cluster_.Submit(Elastic(1, max));
    cluster_.BringUp(job_);
  }
  void Join(const std::string& node, uint32_t slots = 1) {
    cluster_.Join(node, slots);
    nodes_.push_back(node);
  }
  // All nodes are alive.
  Effects Run(absl::Duration by) { return cluster_.Run(by, nodes_); }
  // Whether the job's ranks on the node are asked to leave their state in memory when they stop.
  bool StopsInMemory(const Effects& effects, const std::string& node) const {
    const v1::CoordinatorMessage* const stop =
        testing::FindSent(effects, cluster_.session(node), v1::CoordinatorMessage::kStop);
    return stop != nullptr && stop->stop().leave_in_memory();
  }
  // Only the node a, on which the job's rank runs, reconnects.
  void RestartCoordinator() {
    cluster_.Restart();
    v1::Hello hello = cluster_.MakeHello("a", 1);
    *hello.add_inventory() = cluster_.MakeInventory(job_, {Harness::MakeReport(0, v1::CONNECTED)});
    cluster_.Open(hello);
    nodes_ = {"a"};
  }
  v1::Job Get() const { return cluster_.Get(job_); }
  // As `muster list` shows it.
  v1::Job List() { return *cluster_.core().ListEntry(JobId(job_)); }
  v1::JobState State() const { return cluster_.State(job_); }

  Harness cluster_;
  std::vector<std::string> nodes_;
  std::string job_;
};

TEST_F(Growth, StartsAgainOnMoreNodesOnceTheyAreFree) {
  RunOnOneNode(3);
  Join("b");
  Run(absl::Seconds(5));
  Join("c");  // both nodes cost one interruption
  Run(absl::Seconds(4));
  EXPECT_EQ(State(), v1::RUNNING);
  EXPECT_TRUE(StopsInMemory(Run(absl::Seconds(2)), "a"));
  ASSERT_EQ(State(), v1::STOPPING);
  EXPECT_EQ(Get().reason(), reasons::kGrowing);
  EXPECT_EQ(Get().message(), "growing from 1 to 3 nodes: b, c are free");
  cluster_.ExitAll(job_, Stopped());
  EXPECT_EQ(State(), v1::STARTING);
  EXPECT_EQ(Get().generation(), 2u);
  EXPECT_EQ(Get().ranks_size(), 3);
  EXPECT_EQ(Get().restarts(), 0u);
  EXPECT_FALSE(Get().has_first_failure());
  cluster_.BringUp(job_);
  Join("d");
  Run(absl::Minutes(1));
  EXPECT_EQ(State(), v1::RUNNING) << "it has as many nodes as it can use";
}

TEST_F(Growth, ShrinksAtOnceWhenNodeIsLost) {
  RunOnOneNode(2);
  Join("b");
  Run(absl::Seconds(11));
  cluster_.ExitAll(job_, Stopped());
  cluster_.BringUp(job_);
  ASSERT_EQ(Get().ranks_size(), 2);
  ASSERT_EQ(List().world_size(), 2u);
  cluster_.Run(absl::Seconds(11), {"a"});  // b is lost
  cluster_.ReportExit("a", job_, 0, Stopped());
  EXPECT_EQ(State(), v1::STARTING);
  EXPECT_EQ(Get().ranks_size(), 1);
  EXPECT_EQ(List().world_size(), 1u);
  cluster_.BringUp(job_);
  cluster_.Join("b", 1, /*incarnation=*/2);
  Run(absl::Seconds(11));
  EXPECT_EQ(Get().reason(), reasons::kGrowing);
}

TEST_F(Growth, ShrinksWhenNodeIsDrained) {
  RunOnOneNode(2);
  Join("b");
  Run(absl::Seconds(11));
  cluster_.ExitAll(job_, Stopped());
  cluster_.BringUp(job_);
  EXPECT_FALSE(StopsInMemory(cluster_.SendLeaving("b"), "a"));
  ASSERT_EQ(Get().reason(), reasons::kNodeDrained);
  cluster_.ExitAll(job_, Stopped());
  EXPECT_EQ(State(), v1::STARTING);
  EXPECT_EQ(Get().ranks_size(), 1);
}

TEST_F(Growth, LeavesNodesToJobsInQueue) {
  RunOnOneNode(2);
  const std::string waiting = cluster_.Submit(MakeSpec(2));
  Join("b");
  Run(absl::Minutes(1));
  EXPECT_EQ(State(), v1::RUNNING);
  ASSERT_TRUE(cluster_.Cancel(waiting).ok());
  Run(absl::Seconds(11));
  EXPECT_EQ(Get().reason(), reasons::kGrowing);
}

TEST_F(Growth, IgnoresJobsThatDoNotFitOnCluster) {
  RunOnOneNode(2);
  cluster_.Submit(MakeSpec(5));
  Join("b");
  Run(absl::Seconds(11));
  EXPECT_EQ(Get().reason(), reasons::kGrowing);
}

TEST_F(Growth, NeedsFreeNodeThatSuitsJob) {
  Join("a");
  v1::JobSpec spec = Elastic(1, 4);
  spec.mutable_resources()->add_exclude_nodes("b");
  job_ = cluster_.Submit(spec);
  cluster_.BringUp(job_);
  Join("b");
  Join("c");
  cluster_.Submit(MakeSpec(1));  // takes b or c: b comes first
  Run(absl::Seconds(11));
  ASSERT_EQ(Get().reason(), reasons::kGrowing);
  EXPECT_EQ(Get().message(), "growing from 1 to 2 nodes: c is free");
}

TEST_F(Growth, KeepsItsNodesWhenAnotherJobTakesTheFreeOne) {
  RunOnOneNode(2);
  Join("b");
  Run(absl::Seconds(11));
  ASSERT_EQ(Get().reason(), reasons::kGrowing);
  const std::string other = cluster_.Submit(MakeSpec(1));
  EXPECT_EQ(cluster_.State(other), v1::STARTING);
  const std::string third = cluster_.Submit(MakeSpec(1));
  cluster_.ExitAll(job_, Stopped());
  EXPECT_EQ(State(), v1::STARTING) << "it comes before jobs in the queue";
  EXPECT_EQ(cluster_.State(third), v1::QUEUED);
  ASSERT_TRUE(cluster_.Cancel(third).ok());
  cluster_.BringUp(job_);
  cluster_.ExitAll(other, ExitWith(0));
  Run(absl::Seconds(15));
  EXPECT_EQ(State(), v1::RUNNING) << "an interruption in vain does not recur soon";
  Run(absl::Seconds(6));
  EXPECT_EQ(Get().reason(), reasons::kGrowing);
}

TEST_F(Growth, OneJobAtATime) {
  Join("a", 2);
  const std::string first = cluster_.Submit(Elastic(1, 2));
  job_ = cluster_.Submit(Elastic(1, 2));
  cluster_.BringUp(first);
  cluster_.BringUp(job_);
  Join("b");
  Run(absl::Seconds(11));
  EXPECT_EQ(cluster_.Get(first).reason(), reasons::kGrowing);
  EXPECT_EQ(State(), v1::RUNNING) << "it would stop in vain";
}

class QuietGrowth : public Growth {
 protected:
  QuietGrowth()
      : Growth([] {
          Options options = Harness::DefaultOptions();
          options.lease = options.job_lease = absl::Hours(1);
          return options;
        }()) {}
};

TEST_F(QuietGrowth, DoesNothingUntilNodesMayBeFree) {
  RunOnOneNode(2);
  Run(absl::Minutes(1));
  EXPECT_GT(cluster_.core().NextDeadline(), cluster_.now().steady + absl::Minutes(1));
  Join("b");
  Run(absl::Seconds(11));
  EXPECT_EQ(Get().reason(), reasons::kGrowing);
}

TEST_F(Growth, SurvivesRestartOfCoordinator) {
  RunOnOneNode(2);
  Join("b");
  Run(absl::Seconds(11));
  ASSERT_EQ(Get().reason(), reasons::kGrowing);
  RestartCoordinator();
  Join("b");
  cluster_.ExitAll(job_, Stopped());
  EXPECT_EQ(Get().ranks_size(), 2);
}

TEST_F(Growth, WatchSurvivesRestartOfCoordinator) {
  RunOnOneNode(2);
  RestartCoordinator();
  Join("b");
  Run(absl::Seconds(11));
  EXPECT_EQ(Get().reason(), reasons::kGrowing);
}

TEST_F(Growth, JobsOfFixedSizeDoNotGrow) {
  Join("a");
  job_ = cluster_.Submit(MakeCommandSpec(1));
  cluster_.BringUp(job_);
  Join("b");
  Run(absl::Minutes(1));
  EXPECT_THAT(cluster_.EventTypes(job_), Not(Contains(events::kStopping)));
}

class LimitedGrowth : public Growth {
 protected:
  LimitedGrowth()
      : Growth([] {
          Options options = Harness::DefaultOptions();
          options.scheduler.default_limits.running_slots = 2;
          return options;
        }()) {}
};

TEST_F(LimitedGrowth, StaysWithinLimitOfOwner) {
  RunOnOneNode(3);
  Join("b");
  Join("c");
  Run(absl::Seconds(11));
  EXPECT_EQ(Get().message(), "growing from 1 to 2 nodes: b is free");
  cluster_.ExitAll(job_, Stopped());
  cluster_.BringUp(job_);
  EXPECT_EQ(Get().ranks_size(), 2);
  Run(absl::Minutes(1));
  EXPECT_EQ(State(), v1::RUNNING);
}

TEST_F(LimitedGrowth, CountsAllSlotsOfExclusiveNodes) {
  Join("a");
  v1::JobSpec spec = Elastic(1, 2);
  spec.mutable_resources()->set_exclusive(true);
  job_ = cluster_.Submit(spec);
  cluster_.BringUp(job_);
  Join("b", /*slots=*/2);
  Run(absl::Minutes(1));
  EXPECT_EQ(State(), v1::RUNNING);
}

}  // namespace
}  // namespace muster::core
