// The makers of convolutions that the contract test runs with.
#ifndef MUSTER_KERNELS_CONTRACT_CONVOLUTION_SET_H_
#define MUSTER_KERNELS_CONTRACT_CONVOLUTION_SET_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/convolution.h"

namespace muster::kernels {

enum class ConvolutionSet {
  kCpu,
  kCudaOnHost,  // a GPU's layers, by kernels and libraries that stand in for NVIDIA's
  kCuda,        // those of the first GPU
};

std::string NameOf(ConvolutionSet set);

using ConvolutionMaker = absl::StatusOr<std::unique_ptr<Convolution>>(const ConvolutionShape&,
                                                                      const ConvolutionOptions&);

struct ConvolutionSetUse {
  // Its convolutions take arrays of the process and have done their work when a call returns; an
  // error of the device fails the test.
  ConvolutionMaker* make;
  // Outputs whose type is wider than the compute type may be rounded to that on their way.
  bool rounds_outputs;
};

// The status says why the set does not run on this machine.
absl::StatusOr<ConvolutionSetUse> UseConvolutionSet(ConvolutionSet set);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CONTRACT_CONVOLUTION_SET_H_
