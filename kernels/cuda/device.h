// A GPU as a Device, by libmuster-cuda.so, which is opened when it is asked for: the same binary
// runs where there is no CUDA.
#ifndef MUSTER_KERNELS_CUDA_DEVICE_H_
#define MUSTER_KERNELS_CUDA_DEVICE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/plugin/plugin.h"
#include "kernels/device.h"

namespace muster::kernels {

// Where the library of the programs in `folder` may lie: beside them, or in ../lib.
std::vector<std::string> CudaLibraryPaths(const std::string& folder);

// The table of `library`, a path, or, when that is empty, of the first that exists among
// CudaLibraryPaths of ProgramFolder(). It stays open. NOT_FOUND where there is none or what it
// needs of CUDA is missing, naming the file; FAILED_PRECONDITION where it is of another version.
absl::StatusOr<const MusterCudaApi*> OpenCudaLibrary(const std::string& library = "");

// The GPU of that number, counted from 0. Besides the errors above UNAVAILABLE, with the driver's
// own word, where no such GPU can be used.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int ordinal,
                                                       const std::string& library = "");

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CUDA_DEVICE_H_
