// The convolution implementations that the contract tests run with.
#ifndef MUSTER_KERNELS_CONTRACT_CONVOLUTION_SET_H_
#define MUSTER_KERNELS_CONTRACT_CONVOLUTION_SET_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/convolution.h"

namespace muster::kernels {

enum class ConvolutionSet {
  kCpu,
  kCudaOnHost,  // a GPU's layers with the CPU build of the kernels and fake NVIDIA libraries
  kCuda,        // the first GPU
  kCudaPtx,     // the PTX of the kernels, interpreted, and fake NVIDIA libraries
};

std::string NameOf(ConvolutionSet set);

// All sets; kCudaPtx only in tests that have the interpreter's library among their data.
std::vector<ConvolutionSet> EveryConvolutionSet();

using ConvolutionMaker = absl::StatusOr<std::unique_ptr<Convolution>>(const ConvolutionShape&,
                                                                      const ConvolutionOptions&);

struct ConvolutionSetUse {
  // Creates convolutions that take arrays in host memory and have finished when a call returns; an
  // error of the device fails the test.
  ConvolutionMaker* make;
  // Whether outputs with a wider type than the compute type may first be rounded to that.
  bool rounds_outputs;
};

// Fails with the reason if the set cannot run on this machine.
absl::StatusOr<ConvolutionSetUse> UseConvolutionSet(ConvolutionSet set);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CONTRACT_CONVOLUTION_SET_H_
