// The learning rate as a function of the step.
#ifndef MUSTER_WORKER_TRAIN_SCHEDULE_H_
#define MUSTER_WORKER_TRAIN_SCHEDULE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::train {

// Linear warm-up from zero, which reaches the base rate with the first step after it, then constant
// or half a cosine that would reach zero with the step after the last. Immutable.
class Schedule {
 public:
  // INVALID_ARGUMENT for an unknown name.
  static absl::StatusOr<Schedule> Create(const v1::ScheduleSpec& spec, double base_rate,
                                         uint64_t total_steps, uint64_t steps_per_epoch);
  // Of the step that follows after `step` steps were done.
  double LearningRate(uint64_t step) const;

 private:
  Schedule() = default;
  double base_rate_ = 0;
  double warmup_steps_ = 0;
  double total_steps_ = 0;
  bool cosine_ = false;
};

// Steps of the whole training: epochs (parts of one count) or max_steps, whichever ends first; at
// least 1.
uint64_t TotalSteps(const v1::TrainSpec& spec, uint64_t steps_per_epoch);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SCHEDULE_H_
