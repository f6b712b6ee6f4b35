#include "common/pipeline/schedule.h"

#include <algorithm>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace muster::pipeline {
namespace {

constexpr Schedule kAll[] = {Schedule::kSequential, Schedule::kGpipe,
                             Schedule::kOneForwardOneBackward};

// The actions as text: "F0 F1 B0 B1".
std::string Text(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    absl::StrAppend(&text, text.empty() ? "" : " ",
                    action.kind == Action::Kind::kForward ? "F" : "B", action.micro_batch);
  }
  return text;
}

TEST(Schedule, ParsesTheNamesOfTheSpec) {
  for (const Schedule schedule : kAll) {
    const absl::StatusOr<Schedule> parsed = ParseSchedule(ScheduleName(schedule));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, schedule);
  }
  EXPECT_EQ(ScheduleName(Schedule::kOneForwardOneBackward), "1f1b");
  const absl::StatusOr<Schedule> unknown = ParseSchedule("2f2b\n");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(unknown.status().message(),
            "unknown schedule '2f2b\\n'; one of: sequential, gpipe, 1f1b");
}

TEST(Schedule, SequentialComputesOneMicroBatchAtATime) {
  for (uint32_t stage = 0; stage < 3; ++stage) {
    EXPECT_EQ(Text(ActionsOf(Schedule::kSequential, 3, stage, 3)), "F0 B0 F1 B1 F2 B2");
  }
}

TEST(Schedule, GpipeComputesAllForwardsBeforeBackwards) {
  for (uint32_t stage = 0; stage < 3; ++stage) {
    EXPECT_EQ(Text(ActionsOf(Schedule::kGpipe, 3, stage, 3)), "F0 F1 F2 B0 B1 B2");
  }
}

TEST(Schedule, OneForwardOneBackwardFillsLaterStagesFirst) {
  const auto text = [](uint32_t stage, uint32_t micro_batches) {
    return Text(ActionsOf(Schedule::kOneForwardOneBackward, 3, stage, micro_batches));
  };
  EXPECT_EQ(text(0, 4), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(text(1, 4), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(text(2, 4), "F0 B0 F1 B1 F2 B2 F3 B3");
  EXPECT_EQ(text(0, 2), "F0 F1 B0 B1");
  EXPECT_EQ(text(0, 0), "");
}

TEST(Schedule, ReturnsActivationSlotsOfEachStage) {
  EXPECT_EQ(ActivationSlots(Schedule::kSequential, 4, 0, 8), 1u);
  EXPECT_EQ(ActivationSlots(Schedule::kGpipe, 4, 3, 8), 8u);
  EXPECT_EQ(ActivationSlots(Schedule::kOneForwardOneBackward, 4, 0, 8), 4u);
  EXPECT_EQ(ActivationSlots(Schedule::kOneForwardOneBackward, 4, 3, 8), 1u);
  EXPECT_EQ(ActivationSlots(Schedule::kOneForwardOneBackward, 4, 0, 3), 3u);
  EXPECT_EQ(ActivationSlots(Schedule::kSequential, 4, 0, 0), 0u);
}

// For random pipelines, checks with a table of slots that each micro-batch is computed once forward
// and once backward, both in ascending order, and always in a free slot.
TEST(Schedule, UsesEachSlotForOneMicroBatchAtATime) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const Schedule schedule = kAll[random() % 3];
    const uint32_t stages = 1 + random() % 9;
    const uint32_t stage = random() % stages;
    const uint32_t micro_batches = 1 + random() % 20;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const uint32_t slots = ActivationSlots(schedule, stages, stage, micro_batches);
    std::vector<bool> used(slots, false);
    uint32_t forwards = 0, backwards = 0;
    int64_t held = 0, peak = 0;
    for (const Action& action : ActionsOf(schedule, stages, stage, micro_batches)) {
      const bool forward = action.kind == Action::Kind::kForward;
      EXPECT_EQ(action.micro_batch, forward ? forwards++ : backwards++);
      EXPECT_NE(used[action.micro_batch % slots], forward);
      used[action.micro_batch % slots] = forward;
      held += forward ? 1 : -1;
      peak = std::max(peak, held);
    }
    EXPECT_EQ(forwards, micro_batches);
    EXPECT_EQ(backwards, micro_batches);
    EXPECT_EQ(peak, slots);
  }
}

}  // namespace
}  // namespace muster::pipeline
