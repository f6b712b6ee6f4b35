// Events about losses that are not finite, and about spikes.
#include <algorithm>
#include <cmath>

#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using testing::Harness;
using ::testing::HasSubstr;
using testing::MakeCommandSpec;
using testing::MakeSpec;

class LossEvents : public ::testing::Test {
 protected:
  void Begin(const v1::JobSpec& spec) {
    cluster_.Join("a", 2);
    job_ = cluster_.Submit(spec);
    if (spec.command().empty()) {
      cluster_.BringUp(job_);
    } else {
      cluster_.ReportPhaseOfAll(job_, v1::STARTED);
    }
    ASSERT_EQ(cluster_.State(job_), v1::RUNNING);
  }
  void Add(uint64_t step, double loss, double typical = 0) {
    v1::LossAnomaly& anomaly = *progress_.add_loss_anomalies();
    anomaly.set_step(step);
    anomaly.set_loss(loss);
    anomaly.set_typical(typical);
  }
  // All anomalies so far, as a rank reports them.
  void Report(uint32_t rank) {
    v1::RankReport report = Harness::MakeReport(rank, v1::STARTED);
    *report.mutable_progress() = progress_;
    cluster_.Report("a", job_, report);
  }
  std::vector<std::string> Messages() {
    std::vector<std::string> messages;
    const absl::StatusOr<std::vector<v1::JobEvent>> all =
        cluster_.core().ListEvents(JobId(job_), 0);
    for (const v1::JobEvent& event : *all) {
      if (event.type() == events::kLossNotFinite || event.type() == events::kLossSpike) {
        messages.push_back(event.type() + ": " + event.message());
      }
    }
    return messages;
  }

  Harness cluster_;
  std::string job_;
  v1::Progress progress_;
};

TEST_F(LossEvents, NameStepAndValueOnce) {
  Begin(MakeSpec(1, 2));
  Add(12, 7.25, 0.5);
  Report(0);
  Add(40, std::nan(""));
  Report(0);
  Report(0);
  EXPECT_THAT(Messages(),
              ElementsAre("LossSpike: the loss of step 12 is 7.25; the median of the steps before "
                          "is 0.5",
                          "LossNotFinite: the loss of step 40 is nan"));
}

TEST_F(LossEvents, AreNotRepeatedAfterARestartOfTheCoordinator) {
  Begin(MakeSpec(1, 2));
  Add(12, 7.25, 0.5);
  Report(0);
  cluster_.Restart();
  v1::Hello hello = cluster_.MakeHello("a", 2);
  *hello.add_inventory() = cluster_.MakeInventory(
      job_, {Harness::MakeReport(0, v1::CONNECTED), Harness::MakeReport(1, v1::CONNECTED)});
  cluster_.Open(hello);
  ASSERT_EQ(cluster_.State(job_), v1::RUNNING);
  Report(0);
  EXPECT_EQ(Messages().size(), 1u);
}

// Ranks of a command report the same step, each for itself.
TEST_F(LossEvents, OfSeveralRanksOfACommandAreOne) {
  Begin(MakeCommandSpec(1, 2));
  Add(3, HUGE_VAL);
  Report(1);
  Report(0);
  EXPECT_THAT(Messages(), ElementsAre("LossNotFinite: the loss of step 3 on rank 1 is inf"));
}

TEST_F(LossEvents, OfACommandWithoutStepsHaveNone) {
  Begin(MakeCommandSpec(1, 2));
  Add(0, HUGE_VAL);
  Report(1);
  Report(0);
  EXPECT_THAT(Messages(), ElementsAre("LossNotFinite: the loss on rank 1 is inf"));
}

TEST_F(LossEvents, AreFewPerGeneration) {
  Begin(MakeSpec(1, 2));
  for (uint64_t step = 1; step < 1000; ++step) {
    progress_.Clear();
    Add(step, std::nan(""));
    Add(step, 5, 1);
    Report(0);
  }
  ASSERT_EQ(Messages().size(), 16u);
  EXPECT_THAT(Messages().back(), HasSubstr("later ones of this generation are not reported"));
  // The next generation has events of its own.
  EXPECT_TRUE(cluster_.Requeue(job_).ok());
  cluster_.ExitAll(job_, testing::KilledBy(15));
  cluster_.BringUp(job_);
  ASSERT_EQ(cluster_.Get(job_).generation(), 2u);
  progress_.Clear();
  Add(2, std::nan(""));
  Report(0);
  EXPECT_EQ(Messages().size(), 17u);
}

}  // namespace
}  // namespace muster::core
