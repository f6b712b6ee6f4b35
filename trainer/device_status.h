// Completes the errors of devices for users.
#ifndef MUSTER_TRAINER_DEVICE_STATUS_H_
#define MUSTER_TRAINER_DEVICE_STATUS_H_

#include "absl/status/status.h"

namespace muster::train {

// Adds exit code kExitNoDevice to the errors of a device that does not work: NOT_FOUND of a
// library, UNAVAILABLE, and INTERNAL. Returns any other status as it is, such as that of exhausted
// memory.
absl::Status WithDeviceExitCode(const absl::Status& status);

// Appends to kernels::OutOfMemoryError which fields of the spec reduce the use of memory. Returns
// any other status as it is.
absl::Status WithMemoryAdvice(const absl::Status& status);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_DEVICE_STATUS_H_
