// For tests: a device's convolution that takes arrays in host memory.
#ifndef MUSTER_KERNELS_TESTING_STAGED_CONVOLUTION_H_
#define MUSTER_KERNELS_TESTING_STAGED_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace muster::kernels {

// Each call copies its arrays to device memory and the results back. Weights and their gradients
// are float32, cast to and from the convolution's types. The workspace is in device
// memory and initially NaN. An error of the device fails the test that makes the call. Returns the
// errors of Device::MakeConvolution and Allocate.
absl::StatusOr<std::unique_ptr<Convolution>> MakeStagedConvolution(
    Device& device, const ConvolutionShape& shape, const ConvolutionOptions& options);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_TESTING_STAGED_CONVOLUTION_H_
