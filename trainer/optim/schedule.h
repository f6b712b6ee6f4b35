// The learning rate as a function of the step.
#ifndef MUSTER_TRAINER_OPTIM_SCHEDULE_H_
#define MUSTER_TRAINER_OPTIM_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::train {

// Linear warm-up from zero, which reaches the base rate at the first step after it, combined with
// one of
//   constant
//   cosine    half a cosine period after the warm-up, which would reach zero at the step after the
//             last (Loshchilov & Hutter 2017, without restarts)
//   step      multiplied by `factor` after each milestone, or every `every_epochs` epochs, counted
//             from the start of training even with a warm-up
// Immutable.
class Schedule {
 public:
  // `spec` must have the coordinator's defaults filled in. INVALID_ARGUMENT names the field.
  static absl::StatusOr<Schedule> Create(const v1::ScheduleSpec& spec, double base_rate,
                                         uint64_t total_steps, uint64_t steps_per_epoch);
  // Learning rate of the next step after `step` completed steps.
  double LearningRate(uint64_t step) const;

 private:
  enum class Shape { kConstant, kCosine, kStep };
  Schedule() = default;
  absl::Status SetSteps(const v1::ScheduleSpec& spec, uint64_t steps_per_epoch);
  // Factor for the base rate, without the warm-up.
  double Multiplier(uint64_t step) const;

  Shape shape_ = Shape::kConstant;
  double base_rate_ = 0;
  double warmup_steps_ = 0;
  double total_steps_ = 0;
  std::vector<uint64_t> milestones_;  // in steps
  uint64_t every_steps_ = 0;          // 0: only milestones
  double factor_ = 0;
};

// Total number of training steps: epochs (may be fractional) or max_steps, whichever ends first; at
// least 1.
uint64_t TotalSteps(const v1::TrainSpec& spec, uint64_t steps_per_epoch);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OPTIM_SCHEDULE_H_
