// What a rank's process exits with when a status ends it.
#ifndef MUSTER_TRAINER_LOOP_EXIT_CODE_H_
#define MUSTER_TRAINER_LOOP_EXIT_CODE_H_

#include "absl/status/status.h"

namespace muster::train {

// As in sysexits.h.
inline constexpr int kExitFailure = 1;
inline constexpr int kExitDiverged = 65;      // the loss is no finite number any more
inline constexpr int kExitNoInput = 66;       // a data file is missing or damaged
inline constexpr int kExitNoDevice = 71;      // the GPU that the rank was given cannot be used
inline constexpr int kExitCannotCreate = 73;  // a checkpoint cannot be written
inline constexpr int kExitBadSpec = 78;       // the spec asks for what cannot be

// The same status with the exit code as a payload, unless it is OK or has one already.
absl::Status WithExitCode(const absl::Status& status, int exit_code);

// The payload's, or kExitFailure.
int ExitCodeOf(const absl::Status& status);

// Whether a new generation would fail the same way: true for the codes above other than
// kExitFailure and kExitNoDevice.
bool IsPermanent(int exit_code);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_EXIT_CODE_H_
