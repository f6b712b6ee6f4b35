// Attaches process exit codes to statuses.
#ifndef MUSTER_TRAINER_EXIT_CODE_H_
#define MUSTER_TRAINER_EXIT_CODE_H_

#include "absl/status/status.h"
#include "common/process/exit_code.h"

namespace muster::train {

using muster::kExitBadSpec;
using muster::kExitCannotCreate;
using muster::kExitDiverged;
using muster::kExitFailure;
using muster::kExitNoDevice;
using muster::kExitNoInput;

// Returns `status` with the exit code as a payload, unless it is OK or already has one.
absl::Status WithExitCode(const absl::Status& status, int exit_code);

// Returns the exit code in the payload, or kExitFailure.
int ExitCodeOf(const absl::Status& status);

// Whether a new generation would fail in the same way: true for all codes above except kExitFailure
// and kExitNoDevice.
bool IsPermanent(int exit_code);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_EXIT_CODE_H_
