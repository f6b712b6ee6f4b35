#include "trainer/loop/progress.h"

#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace muster::train {
namespace {

class ProgressTest : public ::testing::Test {
 protected:
  void Step(absl::Duration takes) {
    now_.steady = now_.steady + takes;
    now_.wall += takes;
    statistics_.Add({takes, {}, {}, {}});
    v1::Progress& progress = reporter_.progress();
    progress.set_step(progress.step() + 1);
    progress.set_samples(progress.step() * 100);
    reporter_.StepDone(statistics_, now_);
  }

  std::vector<v1::Progress> sent_;
  ProgressReporter reporter_{[this](const v1::Progress& p) { sent_.push_back(p); }};
  StepStatistics statistics_;
  Time now_{SteadyTime(absl::Seconds(1000)), absl::FromUnixSeconds(5000)};
};

TEST_F(ProgressTest, SendsEveryStepAndUpdatesRatesFiveTimesPerSecond) {
  Step(absl::Milliseconds(10));
  ASSERT_EQ(sent_.size(), 1);
  EXPECT_EQ(sent_[0].first_step_time().seconds(), 5000);
  EXPECT_EQ(sent_[0].first_step_time().nanos(), 10'000'000);
  for (int i = 0; i < 200; ++i) Step(absl::Milliseconds(i + 1));
  ASSERT_EQ(sent_.size(), 201);
  std::set<double> medians;
  for (const v1::Progress& progress : sent_) medians.insert(progress.step_seconds());
  EXPECT_EQ(sent_.back().step(), 201);
  EXPECT_LT(medians.size(), 110) << "over 20.1 s";
  EXPECT_GT(medians.size(), 50);
  EXPECT_EQ(sent_.back().first_step_time().nanos(), 10'000'000);
}

TEST_F(ProgressTest, ReportsRateAndTimeLeft) {
  reporter_.progress().set_total_steps(1000);
  for (int i = 0; i < 500; ++i) Step(absl::Milliseconds(20));
  EXPECT_NEAR(sent_.back().images_per_second(), 5000, 1);
  EXPECT_NEAR(sent_.back().step_seconds(), 0.02, 1e-9);
  EXPECT_NEAR(sent_.back().time_left().seconds(), (1000.0 - sent_.back().step()) * 0.02, 1);
  // Slower steps: after the window only the new rate is reported.
  for (int i = 0; i < 200; ++i) Step(absl::Milliseconds(100));
  EXPECT_NEAR(sent_.back().images_per_second(), 1000, 1);
}

TEST_F(ProgressTest, AddsTheRestOfThePhaseToTheTimeLeft) {
  reporter_.progress().set_total_steps(11);
  Step(absl::Seconds(2));
  reporter_.SetPhase("evaluating");
  reporter_.SetPhaseProgress(0, 400, "images", absl::ZeroDuration());
  EXPECT_FALSE(sent_.back().has_time_left()) << "it is not known yet";
  reporter_.SetPhaseProgress(100, 400, "images", absl::Seconds(5));
  EXPECT_EQ(sent_.back().phase_progress(), 100);
  EXPECT_EQ(sent_.back().phase_total(), 400);
  EXPECT_EQ(sent_.back().time_left().seconds(), 10 * 2 + 15);
  reporter_.SetPhase("training");
  EXPECT_EQ(sent_.back().phase_total(), 0);
  EXPECT_EQ(sent_.back().time_left().seconds(), 10 * 2);
}

// For example a training that ended in its final evaluation.
TEST_F(ProgressTest, KnowsTheTimeLeftOfAnEvaluationWithoutSteps) {
  reporter_.SetPhaseProgress(100, 400, "images", absl::Seconds(5));
  EXPECT_EQ(sent_.back().time_left().seconds(), 15);
}

TEST_F(ProgressTest, SendsPhasesAtOnce) {
  reporter_.SetPhase("training");
  reporter_.SetPhase("evaluating");
  ASSERT_EQ(sent_.size(), 2);
  EXPECT_EQ(sent_[1].phase(), "evaluating");
}

}  // namespace
}  // namespace muster::train
