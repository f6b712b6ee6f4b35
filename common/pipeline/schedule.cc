#include "common/pipeline/schedule.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace muster::pipeline {
namespace {

constexpr Schedule kSchedules[] = {Schedule::kSequential, Schedule::kGpipe,
                                   Schedule::kOneForwardOneBackward};

// The number of forwards before the first backward, which defines a schedule.
uint32_t ForwardsAhead(Schedule schedule, uint32_t stages, uint32_t stage, uint32_t micro_batches) {
  switch (schedule) {
    case Schedule::kSequential:
      return std::min(micro_batches, 1u);
    case Schedule::kGpipe:
      return micro_batches;
    case Schedule::kOneForwardOneBackward:
      return std::min(micro_batches, stages - stage);
  }
  return 0;
}

}  // namespace

absl::StatusOr<Schedule> ParseSchedule(absl::string_view word) {
  for (const Schedule schedule : kSchedules) {
    if (word == ScheduleName(schedule)) return schedule;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown schedule '", absl::Utf8SafeCHexEscape(word), "'; one of: sequential, gpipe, 1f1b"));
}

absl::string_view ScheduleName(Schedule schedule) {
  switch (schedule) {
    case Schedule::kSequential:
      return "sequential";
    case Schedule::kGpipe:
      return "gpipe";
    case Schedule::kOneForwardOneBackward:
      return "1f1b";
  }
  return "";
}

std::vector<Action> ActionsOf(Schedule schedule, uint32_t stages, uint32_t stage,
                              uint32_t micro_batches) {
  const uint32_t ahead = ForwardsAhead(schedule, stages, stage, micro_batches);
  std::vector<Action> actions;
  actions.reserve(2 * size_t{micro_batches});
  uint32_t forward = 0;
  while (forward < ahead) actions.push_back({Action::Kind::kForward, forward++});
  for (uint32_t backward = 0; backward < micro_batches; ++backward) {
    actions.push_back({Action::Kind::kBackward, backward});
    if (forward < micro_batches) actions.push_back({Action::Kind::kForward, forward++});
  }
  return actions;
}

uint32_t ActivationSlots(Schedule schedule, uint32_t stages, uint32_t stage,
                         uint32_t micro_batches) {
  return ForwardsAhead(schedule, stages, stage, micro_batches);
}

}  // namespace muster::pipeline
