// Pipeline schedules: the order in which each stage computes the micro-batches of a step.
//
// Pure functions: each rank computes the actions of its own stage, the simulator those of all
// stages. In every schedule, each stage computes forwards and backwards in ascending order of
// micro-batches. The GPipe paper computes backwards in descending order, which takes the same time
// and memory, but accumulates gradients in another order; here, all schedules give bit-identical
// results.
#ifndef MUSTER_COMMON_PIPELINE_SCHEDULE_H_
#define MUSTER_COMMON_PIPELINE_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster::pipeline {

enum class Schedule {
  // Each micro-batch passes forward and backward through all stages before the next one starts, so
  // that one stage computes at a time.
  kSequential,
  // Forward of all micro-batches, then backward of all (Huang et al. 2019).
  kGpipe,
  // Warmup forwards that fill the later stages, then alternating backwards and forwards, then the
  // remaining backwards (Narayanan et al. 2019, without its asynchronous updates).
  kOneForwardOneBackward,
};

// Parses the values of the spec: "sequential", "gpipe", "1f1b". INVALID_ARGUMENT for any other.
absl::StatusOr<Schedule> ParseSchedule(absl::string_view word);
absl::string_view ScheduleName(Schedule schedule);

struct Action {
  enum class Kind { kForward, kBackward };
  Kind kind;
  uint32_t micro_batch;  // 0 to micro_batches - 1

  friend bool operator==(const Action& a, const Action& b) {
    return a.kind == b.kind && a.micro_batch == b.micro_batch;
  }
};

// The actions of stage `stage` of `stages` in a step, in order: one forward and one backward for
// each of `micro_batches` micro-batches. A forward needs the output of the previous stage, a
// backward the gradient from the next stage, for the same micro-batch; waiting for them in this
// order cannot deadlock. Requires stage < stages. Empty if micro_batches is 0.
std::vector<Action> ActionsOf(Schedule schedule, uint32_t stages, uint32_t stage,
                              uint32_t micro_batches);

// The maximum number of in-flight micro-batches of `stage`, whose activations it must keep at the
// same time. Micro-batch i may use slot i % ActivationSlots(...): the previous user of the slot has
// completed its backward by then. Requires stage < stages.
uint32_t ActivationSlots(Schedule schedule, uint32_t stages, uint32_t stage,
                         uint32_t micro_batches);

}  // namespace muster::pipeline

#endif  // MUSTER_COMMON_PIPELINE_SCHEDULE_H_
