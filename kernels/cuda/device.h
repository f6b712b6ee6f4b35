// GPUs as Devices. libmuster-cuda.so is loaded at run time, so that the same binary also runs
// without CUDA.
#ifndef MUSTER_KERNELS_CUDA_DEVICE_H_
#define MUSTER_KERNELS_CUDA_DEVICE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/numerics.h"
#include "kernels/cuda/plugin/plugin.h"
#include "kernels/device.h"

namespace muster::kernels {

// The paths where the programs in `folder` look for libmuster-cuda.so: in `folder`, then in ../lib.
std::vector<std::string> CudaLibraryPaths(const std::string& folder);

// Loads libmuster-cuda.so from the path `library` or, if that is empty, from the first existing
// path of CudaLibraryPaths(ProgramFolder()), and returns its table of functions. The library is
// never closed. Errors: NOT_FOUND, naming the file, if the library or one of its dependencies is
// missing; FAILED_PRECONDITION if it is of another version.
absl::StatusOr<const MusterCudaApi*> OpenCudaLibrary(const std::string& library = "");

// Opens the GPU with this CUDA device ordinal. Errors: those of OpenCudaLibrary; UNAVAILABLE, with
// the driver's text, if the GPU does not exist or cannot be used.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int ordinal, const std::string& library = "",
                                                       const cuda::Numerics& numerics = {});

// Lets the GPUs with the ordinals [0, devices), which are open, access each other's memory directly
// where the hardware can; copies between others are staged by the driver. Returns the number of
// ordered pairs that can. Errors: those of OpenCudaLibrary.
absl::StatusOr<int> EnablePeerAccess(int devices, const std::string& library = "");

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CUDA_DEVICE_H_
