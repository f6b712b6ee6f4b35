// The error of an allocation that exceeds a device's free memory.
#ifndef MUSTER_KERNELS_OUT_OF_MEMORY_H_
#define MUSTER_KERNELS_OUT_OF_MEMORY_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace muster::kernels {

// RESOURCE_EXHAUSTED: `device` cannot allocate `bytes` (0: unknown) for `use` and has `free_bytes`
// (0: unknown). `cause`: the driver's or a library's message.
absl::Status OutOfMemoryError(absl::string_view device, absl::string_view use, size_t bytes,
                              size_t free_bytes, absl::string_view cause);

// Whether the status is an OutOfMemoryError, possibly annotated. Other RESOURCE_EXHAUSTED errors,
// for example of a full disk, are not.
bool IsOutOfMemory(const absl::Status& status);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_OUT_OF_MEMORY_H_
