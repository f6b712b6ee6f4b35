// What convolutions and linear layers need of the device that they run on.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_LAYER_RUNTIME_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_LAYER_RUNTIME_H_

#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/convolution/convolution_kernels.h"
#include "kernels/device.h"

namespace muster::kernels::cuda {

// All of it outlives the layers. For the device's one thread.
struct LayerRuntime {
  Device* device;
  const ConvolutionKernels* kernels;  // in the device's stream, as device->kernels()
  // Milliseconds that what `work` queues takes on the device; waits for it.
  std::function<absl::StatusOr<float>(absl::FunctionRef<void()> work)> time;
  // Takes the errors of calls that return none.
  std::function<void(const absl::Status&)> report;
};

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_LAYER_RUNTIME_H_
