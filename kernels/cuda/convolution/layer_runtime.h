// Access to a device for its convolutions and linear layers.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_LAYER_RUNTIME_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_LAYER_RUNTIME_H_

#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/convolution.h"
#include "kernels/cuda/convolution/convolution_kernels.h"
#include "kernels/cuda/numerics.h"
#include "kernels/device.h"

namespace muster::kernels::cuda {

// Outlives the layers. Used by the device's thread only.
struct LayerRuntime {
  Device* device;
  const ConvolutionKernels* kernels;  // queued in the device's stream, like device->kernels()
  // Waits for the work that `work` queues on the device, and returns its duration in milliseconds.
  std::function<absl::StatusOr<float>(absl::FunctionRef<void()> work)> time;
  // Receives the errors of functions that return void.
  std::function<void(const absl::Status&)> report;
  Numerics numerics = {};
};

// INVALID_ARGUMENT for a layer whose shape or options are out of range or not supported.
inline absl::Status InvalidLayerError(const ConvolutionShape& shape) {
  return absl::InvalidArgumentError(absl::StrCat(
      "invalid convolution: input ", shape.height, "x", shape.width, "x", shape.in_channels,
      ", output channels ", shape.out_channels, ", kernel ", shape.kernel, ", stride ",
      shape.stride, ", padding ", shape.padding, ", groups ", shape.groups));
}

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_LAYER_RUNTIME_H_
