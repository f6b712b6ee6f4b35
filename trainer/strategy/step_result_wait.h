// Waits for a step queued on a device, which a lost peer may keep from finishing.
#ifndef MUSTER_TRAINER_STRATEGY_STEP_RESULT_WAIT_H_
#define MUSTER_TRAINER_STRATEGY_STEP_RESULT_WAIT_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"

namespace muster::train {

// Polls until `known` returns true or `status`, the status of all groups that the step uses,
// returns an error. OK if the result is known; otherwise the error of `status`. After `timeout`,
// aborts `devices` with a DEADLINE_EXCEEDED error that names the step. The host has to poll because
// only the device knows the progress of queued work.
absl::Status AwaitStepResult(absl::FunctionRef<bool()> known,
                             absl::FunctionRef<absl::Status()> status,
                             collectives::Communicator& devices, absl::Duration timeout,
                             uint64_t step);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_STEP_RESULT_WAIT_H_
