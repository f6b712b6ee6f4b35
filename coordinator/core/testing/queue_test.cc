// The queue under load: whatever their sizes, jobs start in queue order, no slot is assigned twice,
// and all jobs finish.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "coordinator/core/testing/harness.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::ExitWith;
using testing::Harness;
using testing::MakeCommandSpec;

class Queue : public ::testing::Test {
 protected:
  // The slots of all ranks that have not exited.
  void CheckSlots() {
    std::set<std::pair<std::string, uint32_t>> taken;
    for (const std::string& job : jobs_) {
      const v1::Job view = cluster_.Get(job);
      if (view.state() == v1::QUEUED) continue;
      for (const v1::RankStatus& rank : view.ranks()) {
        if (rank.phase() == v1::EXITED) continue;
        for (const uint32_t slot : rank.slots()) {
          EXPECT_TRUE(taken.insert({rank.node(), slot}).second)
              << job << " shares slot " << slot << " of " << rank.node();
        }
      }
    }
  }
  std::set<std::string> Started() {
    std::set<std::string> started;
    for (const std::string& job : jobs_) {
      if (cluster_.Get(job).generation() > 0) started.insert(job);
    }
    return started;
  }
  std::vector<std::string> Active() {
    std::vector<std::string> active;
    for (const std::string& job : jobs_) {
      if (cluster_.State(job) == v1::STARTING || cluster_.State(job) == v1::RUNNING) {
        active.push_back(job);
      }
    }
    return active;
  }

  Harness cluster_;
  std::vector<std::string> jobs_;
};

TEST_F(Queue, ThirtyTwoJobsOnFourSlotsRunInOrder) {
  for (const char* node : {"a", "b"}) cluster_.Join(node, 2);
  for (int i = 0; i < 32; ++i) jobs_.push_back(cluster_.Submit(MakeCommandSpec(1)));
  std::mt19937 random(32);
  for (size_t ended = 0; ended < jobs_.size(); ++ended) {
    CheckSlots();
    const std::vector<std::string> active = Active();
    ASSERT_EQ(active.size(), std::min<size_t>(4, jobs_.size() - ended)) << "a slot is empty";
    EXPECT_EQ(Started(),
              std::set<std::string>(jobs_.begin(),
                                    jobs_.begin() + static_cast<ptrdiff_t>(ended + active.size())));
    cluster_.ExitAll(active[random() % active.size()], ExitWith(0));
  }
  for (const std::string& job : jobs_) EXPECT_EQ(cluster_.State(job), v1::SUCCEEDED);
}

TEST_F(Queue, DecidesOncePerTurn) {
  cluster_.Join("a", 1);
  v1::JobSpec spec = MakeCommandSpec(1);
  cluster_.Step(SubmitJob{RequestId(901), JobId("low"), spec, ""}, /*more=*/true);
  EXPECT_EQ(cluster_.State("low"), v1::QUEUED);
  spec.set_priority(1);
  cluster_.Step(SubmitJob{RequestId(902), JobId("high"), spec, ""});
  EXPECT_EQ(cluster_.State("low"), v1::QUEUED);
  EXPECT_EQ(cluster_.State("high"), v1::STARTING);
}

TEST_F(Queue, LimitOfQueuedJobsCountsThoseThatWait) {
  Options options = Harness::DefaultOptions();
  options.scheduler.default_limits.queued_jobs = 1;
  cluster_ = Harness(options);
  cluster_.Join("a", 2);
  v1::JobSpec spec = MakeCommandSpec(1);
  cluster_.Step(SubmitJob{RequestId(901), JobId("one"), spec, ""}, /*more=*/true);
  cluster_.Step(SubmitJob{RequestId(902), JobId("two"), spec, ""});
  EXPECT_EQ(cluster_.State("two"), v1::STARTING);
}

// A job between two generations must not meet the turn's next event.
TEST_F(Queue, JobRestartsInTheStepInWhichItsGenerationEnds) {
  cluster_.Join("a", 1);
  v1::JobSpec spec = MakeCommandSpec(1);
  spec.mutable_restart()->set_max(1);
  const std::string job = cluster_.Submit(spec);
  v1::WorkerMessage message;
  v1::GenerationReport& report = *message.mutable_report();
  report.set_job_id(job);
  report.set_generation(1);
  *report.add_ranks() = Harness::MakeReport(0, v1::EXITED);
  *report.mutable_ranks(0)->mutable_exit() = ExitWith(1);
  cluster_.Step(SessionMessage{cluster_.session("a"), message}, /*more=*/true);
  EXPECT_EQ(cluster_.State(job), v1::STARTING);
  EXPECT_EQ(cluster_.Get(job).generation(), 2u);
}

TEST_F(Queue, JobsOfRandomSizesAndPrioritiesAllRun) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    cluster_ = Harness();
    jobs_.clear();
    std::mt19937 random(seed);
    const uint32_t nodes = 1 + random() % 3;
    const uint32_t slots = 1 + random() % 3;
    for (uint32_t i = 0; i < nodes; ++i) cluster_.Join(absl::StrCat("node-", i), slots);
    // Uses the whole cluster, so that no job starts while the others are submitted.
    const std::string first = cluster_.Submit(MakeCommandSpec(nodes, slots));
    for (int i = 0; i < 24; ++i) {
      v1::JobSpec spec = MakeCommandSpec(1 + random() % nodes, 1 + random() % slots);
      if (random() % 6 == 0) spec.mutable_resources()->set_devices_per_rank("all");
      spec.set_priority(static_cast<int32_t>(random() % 2));
      jobs_.push_back(cluster_.Submit(spec));
    }
    cluster_.ExitAll(first, ExitWith(0));
    while (!Active().empty()) {
      CheckSlots();
      const std::vector<std::string> active = Active();
      cluster_.ExitAll(active[random() % active.size()], ExitWith(0));
    }
    EXPECT_EQ(Started().size(), jobs_.size()) << "not all jobs ran";
    for (const std::string& job : jobs_) EXPECT_EQ(cluster_.State(job), v1::SUCCEEDED);
  }
}

TEST(Estimate, UsesTimeLimitsAndProgress) {
  Harness cluster;
  cluster.Join("a");
  v1::JobSpec limited = MakeCommandSpec(1);
  *limited.mutable_time_limit() = ToProto(absl::Minutes(10));
  const std::string running = cluster.Submit(limited);
  const std::string next = cluster.Submit(MakeCommandSpec(1));
  const std::string last = cluster.Submit(MakeCommandSpec(1));
  EXPECT_FALSE(cluster.Get(running).has_estimated_start_time());
  const auto wait_of = [&](const std::string& job) {
    return FromProto(cluster.Get(job).estimated_start_time()) - cluster.now().wall;
  };
  EXPECT_EQ(wait_of(next), absl::Minutes(10));
  EXPECT_FALSE(cluster.Get(last).has_estimated_start_time()) << "the next job has no time limit";
  EXPECT_FALSE(cluster.core()
                   .GetJob(JobId(next), /*detailed=*/false, cluster.now())
                   ->has_estimated_start_time());

  cluster.ReportPhaseOfAll(running, v1::STARTED);
  v1::RankReport report = Harness::MakeReport(0, v1::STARTED);
  *report.mutable_progress()->mutable_time_left() = ToProto(absl::Minutes(3));
  cluster.Report("a", running, report);
  cluster.Advance(absl::Minutes(1));
  EXPECT_EQ(wait_of(next), absl::Minutes(2)) << "the reported time left is below the time limit";
  cluster.Advance(absl::Minutes(4));
  EXPECT_EQ(wait_of(next), absl::ZeroDuration()) << "overdue";
  cluster.Join("b");
  EXPECT_EQ(cluster.State(next), v1::STARTING);
  cluster.Step(CordonNode{NodeName("a"), ""});
  EXPECT_FALSE(cluster.Get(last).has_estimated_start_time())
      << "slots of a cordoned node cannot be used";
}

class Ageing : public ::testing::Test {
 protected:
  static Options MakeOptions() {
    Options options = Harness::DefaultOptions();
    options.scheduler.ageing = absl::Hours(1);
    return options;
  }
  // A job of another owner has the only slot.
  Ageing() {
    cluster_.Join("a");
    SubmitJob other{RequestId(900), JobId("other"), MakeCommandSpec(1), ""};
    other.actor.name = "other";
    cluster_.Step(other);
    cluster_.BringUp("other");
    job_ = cluster_.Submit(MakeCommandSpec(1));
  }
  std::string Class() {
    const v1::GetQueueResponse queue = cluster_.core().GetQueue(0, cluster_.now());
    return queue.jobs_size() == 1 ? queue.jobs(0).effective_class() : "";
  }
  void Run(absl::Duration by) { cluster_.Run(by, {"a"}); }

  Harness cluster_{MakeOptions()};
  std::string job_;
};

TEST_F(Ageing, SurvivesRestartOfCoordinator) {
  Run(absl::Minutes(50));
  cluster_.Restart();
  v1::Hello hello = cluster_.MakeHello("a", 1);
  *hello.add_inventory() = cluster_.MakeInventory("other", {Harness::MakeReport(0, v1::STARTED)});
  cluster_.Open(hello);
  Run(absl::Minutes(9));
  EXPECT_EQ(Class(), "normal");
  Run(absl::Minutes(2));
  EXPECT_EQ(Class(), "overdue");
}

TEST_F(Ageing, TimeOnHoldDoesNotCount) {
  cluster_.Step(HoldJob{RequestId(901), job_, Actor{}});
  Run(absl::Minutes(50));
  cluster_.Step(ReleaseJob{RequestId(902), job_, Actor{}});
  Run(absl::Minutes(50));
  EXPECT_EQ(Class(), "normal");
  Run(absl::Minutes(11));
  EXPECT_EQ(Class(), "overdue");
}

}  // namespace
}  // namespace muster::core
