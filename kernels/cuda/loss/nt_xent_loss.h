// The NT-Xent loss with the matrix products of cuBLASLt: the similarities of all units, and the
// gradient from their coefficients. Products are of float32, or of TF32 if the device's Numerics
// allow it.
#ifndef MUSTER_KERNELS_CUDA_LOSS_NT_XENT_LOSS_H_
#define MUSTER_KERNELS_CUDA_LOSS_NT_XENT_LOSS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/convolution/layer_runtime.h"
#include "kernels/cuda/library/cublaslt.h"
#include "kernels/nt_xent_loss.h"

namespace muster::kernels::cuda {

// Algorithms for `largest` are chosen here, those for other numbers of samples with the first call
// that has them. Errors: UNIMPLEMENTED if cuBLASLt has no algorithm for `largest`,
// RESOURCE_EXHAUSTED, INTERNAL for other errors of cuBLASLt, with its text.
absl::StatusOr<std::unique_ptr<NtXentLoss>> MakeCublasLtNtXentLoss(const NtXentShape& largest,
                                                                   const LayerRuntime& runtime,
                                                                   const CublasLt& cublaslt,
                                                                   CublasLtHandle handle,
                                                                   void* stream);

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_LOSS_NT_XENT_LOSS_H_
