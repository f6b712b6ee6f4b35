#include "kernels/contract/convolution_set.h"

#include <cstdlib>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/contract/kernel_set.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/testing/on_host_device.h"
#include "kernels/device.h"
#include "kernels/testing/staged_convolution.h"

namespace muster::kernels {
namespace {

absl::StatusOr<Device*> Gpu() {
  static const absl::StatusOr<std::unique_ptr<Device>>& device =
      *new absl::StatusOr<std::unique_ptr<Device>>(OpenCudaDevice(0, CudaLibraryOfTests()));
  if (!device.ok()) return device.status();
  return device->get();
}

absl::StatusOr<Device*> PtxGpu() {
  static const absl::StatusOr<std::unique_ptr<Device>>& device = *[] {
    setenv("MUSTER_CUDA_LIBRARY_PATH", "kernels/cuda/testing/fakes", 1);
    setenv("XDG_CACHE_HOME", testing::TempDir().c_str(), 1);
    auto* const opened =
        new absl::StatusOr<std::unique_ptr<Device>>(OpenCudaDevice(0, CudaPtxLibrary()));
    unsetenv("MUSTER_CUDA_LIBRARY_PATH");
    return opened;
  }();
  if (!device.ok()) return device.status();
  return device->get();
}

// A separate device for each process.
Device& OnHost() {
  static Device& device = *MakeCudaOnHostDevice().release();
  return device;
}

}  // namespace

std::vector<ConvolutionSet> EveryConvolutionSet() {
  std::vector<ConvolutionSet> sets = {ConvolutionSet::kCpu, ConvolutionSet::kCudaOnHost,
                                      ConvolutionSet::kCuda};
  if (HasCudaPtxLibrary()) sets.push_back(ConvolutionSet::kCudaPtx);
  return sets;
}

std::string NameOf(ConvolutionSet set) {
  switch (set) {
    case ConvolutionSet::kCpu:
      return "cpu";
    case ConvolutionSet::kCudaOnHost:
      return "cuda_on_host";
    case ConvolutionSet::kCuda:
      return "cuda";
    case ConvolutionSet::kCudaPtx:
      return "cuda_ptx";
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
    case ConvolutionSet::kCudaPtx: {
      const absl::StatusOr<Device*> gpu = PtxGpu();
      if (!gpu.ok()) return gpu.status();
      return ConvolutionSetUse{
          [](const ConvolutionShape& shape, const ConvolutionOptions& options) {
            return MakeStagedConvolution(**PtxGpu(), shape, options);
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
