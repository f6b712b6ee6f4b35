// What a rank's process exits with when a status ends it.
#ifndef MUSTER_TRAINER_LOOP_EXIT_CODE_H_
#define MUSTER_TRAINER_LOOP_EXIT_CODE_H_

#include "absl/status/status.h"
#include "common/exit_code.h"

namespace muster::train {

using muster::kExitBadSpec;
using muster::kExitCannotCreate;
using muster::kExitDiverged;
using muster::kExitFailure;
using muster::kExitNoDevice;
using muster::kExitNoInput;

// The same status with the exit code as a payload, unless it is OK or has one already.
absl::Status WithExitCode(const absl::Status& status, int exit_code);

// The payload's, or kExitFailure.
int ExitCodeOf(const absl::Status& status);

// Whether a new generation would fail the same way: true for the codes above other than
// kExitFailure and kExitNoDevice.
bool IsPermanent(int exit_code);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_EXIT_CODE_H_
