// Finds the fastest of several implementations by measurement on a GPU.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_AUTOTUNE_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_AUTOTUNE_H_

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace muster::kernels::cuda {

// Runs a candidate `runs` times, one after the other, and returns the total milliseconds.
using TimeCandidate = absl::FunctionRef<absl::StatusOr<float>(size_t candidate, int runs)>;

// Returns the index of the candidate with the smallest median of five runs; the first of equally
// fast ones. The candidates run in turn, so that a change of the GPU's clock affects all of them,
// and after 50 ms of work, because an idle GPU is slower. Candidates that fail are left out.
// Errors: the first candidate's if all fail; UNIMPLEMENTED without candidates.
absl::StatusOr<size_t> FindFastest(size_t candidates, TimeCandidate time);

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_AUTOTUNE_H_
