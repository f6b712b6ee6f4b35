#include "kernels/contract/convolution_set.h"

#include <filesystem>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/testing/on_host_device.h"
#include "kernels/device.h"
#include "kernels/testing/staged_convolution.h"

namespace muster::kernels {
namespace {

// Path from the workspace's root, for tests; in a bundle, the library is in its default place.
constexpr char kCudaLibrary[] = "kernels/cuda/libmuster-cuda.so";

absl::StatusOr<Device*> Gpu() {
  static const absl::StatusOr<std::unique_ptr<Device>>& device =
      *new absl::StatusOr<std::unique_ptr<Device>>(
          OpenCudaDevice(0, std::filesystem::exists(kCudaLibrary) ? kCudaLibrary : ""));
  if (!device.ok()) return device.status();
  return device->get();
}

// A separate device for each process.
Device& OnHost() {
  static Device& device = *MakeCudaOnHostDevice().release();
  return device;
}

}  // namespace

std::string NameOf(ConvolutionSet set) {
  switch (set) {
    case ConvolutionSet::kCpu:
      return "cpu";
    case ConvolutionSet::kCudaOnHost:
      return "cuda_on_host";
    case ConvolutionSet::kCuda:
      return "cuda";
  }
  return "";
}

absl::StatusOr<ConvolutionSetUse> UseConvolutionSet(ConvolutionSet set) {
  switch (set) {
    case ConvolutionSet::kCpu:
      break;
    case ConvolutionSet::kCudaOnHost:
      if (!HasFakeLibraries()) {
        return absl::NotFoundError("the fake NVIDIA libraries were not found");
      }
      return ConvolutionSetUse{
          [](const ConvolutionShape& shape, const ConvolutionOptions& options) {
            return MakeStagedConvolution(OnHost(), shape, options);
          },
          true};
    case ConvolutionSet::kCuda: {
      const absl::StatusOr<Device*> gpu = Gpu();
      if (!gpu.ok()) return gpu.status();
      return ConvolutionSetUse{
          [](const ConvolutionShape& shape, const ConvolutionOptions& options) {
            return MakeStagedConvolution(**Gpu(), shape, options);
          },
          true};
    }
  }
  return ConvolutionSetUse{[](const ConvolutionShape& shape, const ConvolutionOptions& options) {
                             return CpuDevice().MakeConvolution(shape, options);
                           },
                           false};
}

}  // namespace muster::kernels
