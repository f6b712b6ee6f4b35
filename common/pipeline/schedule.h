// The order in which the stages of a pipeline compute the micro-batches of a step.
//
// Pure functions of their arguments: every rank works out its own part, and the simulator all of
// them. In every schedule each stage goes forward, and also backward, through the micro-batches in
// ascending order. GPipe's paper goes backward in the reverse one, which costs the same time and
// memory; but then a stage's gradients would be added up in another order, and training would not
// be equal to the bit whatever the schedule.
#ifndef MUSTER_COMMON_PIPELINE_SCHEDULE_H_
#define MUSTER_COMMON_PIPELINE_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster::pipeline {

enum class Schedule {
  // A micro-batch goes forward through all stages and back before the next one starts: one stage
  // computes at a time.
  kSequential,
  // Forward of all micro-batches, then backward of all (Huang et al. 2019).
  kGpipe,
  // As many forwards as fill the stages behind, then one forward and one backward in turn, then the
  // backwards that are left (Narayanan et al. 2019, without its asynchronous updates).
  kOneForwardOneBackward,
};

// The spec's words: "sequential", "gpipe", "1f1b". INVALID_ARGUMENT for any other.
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

// What `stage` of `stages` computes in a step, in order: the forward and the backward of each of
// `micro_batches`. A forward needs the output of the stage before, a backward the gradient from the
// stage behind, of the same micro-batch; whoever waits for them in this order never deadlocks.
// stage < stages; none for a step without micro-batches.
std::vector<Action> ActionsOf(Schedule schedule, uint32_t stages, uint32_t stage,
                              uint32_t micro_batches);

// Micro-batches whose activations `stage` keeps at once, at most. Micro-batch i may use slot
// i % ActivationSlots(...): the one that had it before is over. stage < stages.
uint32_t ActivationSlots(Schedule schedule, uint32_t stages, uint32_t stage,
                         uint32_t micro_batches);

}  // namespace muster::pipeline

#endif  // MUSTER_COMMON_PIPELINE_SCHEDULE_H_
