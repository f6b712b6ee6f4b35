// Plain memory of the host for large arrays.
#ifndef MUSTER_KERNELS_HOST_ALLOCATION_H_
#define MUSTER_KERNELS_HOST_ALLOCATION_H_

#include <cstddef>

#include "absl/status/statusor.h"

namespace muster::kernels {

// At least one byte, aligned to 64 bytes; several MiB and more in huge pages where the kernel has
// them, because a pass over an array misses the TLB at each small page. Freed by std::free.
// RESOURCE_EXHAUSTED.
absl::StatusOr<void*> AllocateHostArray(size_t bytes);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_HOST_ALLOCATION_H_
