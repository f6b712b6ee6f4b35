// Waiting for what a device was told to do, when a lost peer may keep it from its end.
#ifndef MUSTER_TRAINER_STRATEGY_STEP_RESULT_WAIT_H_
#define MUSTER_TRAINER_STRATEGY_STEP_RESULT_WAIT_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"

namespace muster::train {

// Until `known`, as long as no group has failed: nobody but the device knows how far what was
// recorded has come. When `timeout` has passed, `devices` is aborted with a DEADLINE_EXCEEDED that
// names the step. `status`, of all groups that the step goes by, is what is given back; OK: it is
// known.
absl::Status AwaitStepResult(absl::FunctionRef<bool()> known,
                             absl::FunctionRef<absl::Status()> status,
                             collectives::Communicator& devices, absl::Duration timeout,
                             uint64_t step);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_STEP_RESULT_WAIT_H_
