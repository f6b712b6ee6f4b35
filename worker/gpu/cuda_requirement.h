// The CUDA version that train jobs need, and whether a node's driver supports it.
#ifndef MUSTER_WORKER_GPU_CUDA_REQUIREMENT_H_
#define MUSTER_WORKER_GPU_CUDA_REQUIREMENT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster::gpu {

// Versions are those of the CUDA runtime: 13000 is 13.0. 0: none.

// Parses --required-cuda: auto (the version that libmuster-cuda.so of this build is linked with),
// none, or a version such as 12.8. INVALID_ARGUMENT.
absl::StatusOr<int> ParseRequiredCuda(absl::string_view text);

// Why the driver cannot run programs that need CUDA version `required`; empty if it can, or if
// `supported`, the latest version that the driver supports, is not known. A driver also supports
// later versions of the same major version.
std::string DriverProblem(int required, std::optional<int> supported,
                          absl::string_view driver_version);

}  // namespace muster::gpu

#endif  // MUSTER_WORKER_GPU_CUDA_REQUIREMENT_H_
