// For tests: a device's convolution that takes arrays of the process, wherever the device's lie.
#ifndef MUSTER_KERNELS_TESTING_STAGED_CONVOLUTION_H_
#define MUSTER_KERNELS_TESTING_STAGED_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace muster::kernels {

// Each call copies its arrays to memory of the device and its results back. The workspace is the
// device's too, at first full of what is no number. An error of the device fails the test that
// makes the call. Errors are Device::MakeConvolution's and Allocate's.
absl::StatusOr<std::unique_ptr<Convolution>> MakeStagedConvolution(
    Device& device, const ConvolutionShape& shape, const ConvolutionOptions& options);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_TESTING_STAGED_CONVOLUTION_H_
