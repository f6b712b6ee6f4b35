#include "trainer/optim/schedule.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::train {
namespace {

v1::ScheduleSpec Spec(const char* name, double warmup_epochs) {
  v1::ScheduleSpec spec;
  spec.set_name(name);
  spec.set_warmup_epochs(warmup_epochs);
  return spec;
}

TEST(ScheduleTest, KeepsConstantRate) {
  const Schedule schedule = *Schedule::Create(Spec("constant", 0), 0.1, 100, 10);
  for (const uint64_t step : {0, 1, 99, 1000}) EXPECT_EQ(schedule.LearningRate(step), 0.1);
}

TEST(ScheduleTest, WarmsUpLinearly) {
  // Half an epoch of ten steps: five steps below the base rate, evenly spaced.
  const Schedule schedule = *Schedule::Create(Spec("constant", 0.5), 0.6, 100, 10);
  for (uint64_t step = 0; step < 5; ++step) {
    EXPECT_NEAR(schedule.LearningRate(step), 0.1 * (step + 1), 1e-12);
  }
  EXPECT_EQ(schedule.LearningRate(5), 0.6);
}

TEST(ScheduleTest, CosineFallsToZero) {
  const Schedule schedule = *Schedule::Create(Spec("cosine", 1), 1.0, 110, 10);
  EXPECT_NEAR(schedule.LearningRate(10), 1.0, 1e-12);
  EXPECT_NEAR(schedule.LearningRate(35), 0.85355339, 1e-8);
  EXPECT_NEAR(schedule.LearningRate(60), 0.5, 1e-12);
  EXPECT_NEAR(schedule.LearningRate(110), 0.0, 1e-12);
  EXPECT_NEAR(schedule.LearningRate(500), 0.0, 1e-12);
}

TEST(ScheduleTest, StepsDownAtMilestones) {
  v1::ScheduleSpec spec = Spec("step", 0);
  spec.set_factor(0.1);
  spec.add_milestones(1.5);
  spec.add_milestones(4);
  const Schedule schedule = *Schedule::Create(spec, 2.0, 100, 10);
  EXPECT_EQ(schedule.LearningRate(14), 2.0);
  EXPECT_NEAR(schedule.LearningRate(15), 0.2, 1e-12);
  EXPECT_NEAR(schedule.LearningRate(39), 0.2, 1e-12);
  EXPECT_NEAR(schedule.LearningRate(40), 0.02, 1e-12);
  EXPECT_NEAR(schedule.LearningRate(1000), 0.02, 1e-12);
}

TEST(ScheduleTest, StepsDownEveryNEpochs) {
  v1::ScheduleSpec spec = Spec("step", 0);
  spec.set_factor(0.5);
  spec.set_every_epochs(2);
  const Schedule schedule = *Schedule::Create(spec, 1.0, 100, 10);
  EXPECT_EQ(schedule.LearningRate(19), 1.0);
  EXPECT_EQ(schedule.LearningRate(20), 0.5);
  EXPECT_EQ(schedule.LearningRate(65), 0.125);
}

TEST(ScheduleTest, CountsMilestonesFromStartWithWarmUp) {
  v1::ScheduleSpec spec = Spec("step", 1);
  spec.set_factor(0.5);
  spec.add_milestones(0.5);
  spec.add_milestones(1.2);
  const Schedule schedule = *Schedule::Create(spec, 1.1, 100, 10);
  EXPECT_NEAR(schedule.LearningRate(4), 0.5, 1e-12);
  EXPECT_NEAR(schedule.LearningRate(5), 0.3, 1e-12);
  EXPECT_NEAR(schedule.LearningRate(10), 0.55, 1e-12);
  EXPECT_NEAR(schedule.LearningRate(12), 0.275, 1e-12);
}

TEST(ScheduleTest, RejectsInvalidSpecs) {
  const auto error = [](const v1::ScheduleSpec& spec) {
    const absl::Status status = Schedule::Create(spec, 1, 10, 10).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error(Spec("linear", 0)), ::testing::HasSubstr("unknown 'linear'"));
  v1::ScheduleSpec spec = Spec("step", 0);
  EXPECT_THAT(error(spec), ::testing::HasSubstr("factor"));
  spec.set_factor(0.1);
  EXPECT_THAT(error(spec), ::testing::HasSubstr("milestones or every_epochs"));
  spec.add_milestones(-1);
  EXPECT_THAT(error(spec), ::testing::HasSubstr("milestones: must be"));
}

TEST(TotalStepsTest, UsesWhicheverEndsFirst) {
  v1::TrainSpec spec;
  spec.set_epochs(3);
  EXPECT_EQ(TotalSteps(spec, 235), 705);
  spec.set_max_steps(500);
  EXPECT_EQ(TotalSteps(spec, 235), 500);
  spec.set_max_steps(1000);
  EXPECT_EQ(TotalSteps(spec, 235), 705);
  spec.set_epochs(0);
  EXPECT_EQ(TotalSteps(spec, 235), 1000);
}

TEST(TotalStepsTest, RoundsFractionalEpochsUp) {
  v1::TrainSpec spec;
  spec.set_epochs(0.1);
  EXPECT_EQ(TotalSteps(spec, 10), 1);
  EXPECT_EQ(TotalSteps(spec, 15), 2);
  spec.set_epochs(1e-9);
  EXPECT_EQ(TotalSteps(spec, 10), 1);
}

}  // namespace
}  // namespace muster::train
