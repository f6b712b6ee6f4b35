// Lets all ranks of a training act on requests after the same step.
#ifndef MUSTER_TRAINER_LOOP_STEP_AGREEMENT_H_
#define MUSTER_TRAINER_LOOP_STEP_AGREEMENT_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"
#include "common/time/time.h"

namespace muster::train {

// What one rank contributes to an agreement.
struct RankVote {
  bool stop = false;          // this rank was asked to stop
  bool in_memory = false;     // it was asked to leave its state in memory at that stop
  bool only_on_disk = false;  // it cannot leave its state in memory
  bool checkpoint = false;    // a checkpoint is due or was asked for
  bool writing = false;       // this rank is still writing a checkpoint
  bool failed = false;        // this rank could not write the newest checkpoint
};

// The same on all ranks.
struct AgreedRequests {
  bool stop = false;       // at least one rank was asked to stop
  bool in_memory = false;  // at that stop, all ranks can leave their states in memory, as asked for
  bool checkpoint = false;    // at least one rank wants a checkpoint, and none is writing one
  bool writing = false;       // at least one rank is still writing a checkpoint
  bool failed = false;        // at least one rank could not write the newest checkpoint
  uint32_t window_steps = 0;  // length of a window of StepWindowRecorder; 0: not agreed on yet
};

// The ranks agree in one small all-reduce about every 250 ms: rank 0 derives the number of steps
// until the next one, and the length of windows, from the measured step time and distributes both
// in the same operation. A world of one rank needs no communication, agrees after each step, and
// has no windows.
//
// Used by the training thread. Callers pass in the current time.
class StepAgreement {
 public:
  // `world` outlives the object.
  explicit StepAgreement(collectives::Communicator* world) : world_(*world) {}

  // Training begins. The first agreement is due after the first step.
  void Start(SteadyTime now) { last_ = now; }
  // Counts a step, and returns whether an agreement is due. The ranks get the same results.
  bool StepDone() { return ++steps_ >= due_steps_; }
  // Collective, also before it is due. Returns the communicator's errors.
  absl::StatusOr<AgreedRequests> Agree(const RankVote& vote, SteadyTime now);

 private:
  static constexpr absl::Duration kInterval = absl::Milliseconds(250);
  // Limits the delay of a request if steps suddenly become much slower.
  static constexpr int32_t kMaxSteps = 64;

  absl::Duration StepTime(SteadyTime now) const { return (now - last_) / std::max(1, steps_); }
  int32_t ChooseSteps(SteadyTime now) const;
  int32_t ChooseWindow(SteadyTime now) const;

  collectives::Communicator& world_;
  SteadyTime last_;    // previous agreement
  int32_t steps_ = 0;  // steps since the last agreement
  int32_t due_steps_ = 1;
  int32_t window_steps_ = 0;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_STEP_AGREEMENT_H_
