// How exact the algorithms are that a GPU's libraries may use.
#ifndef MUSTER_KERNELS_CUDA_NUMERICS_H_
#define MUSTER_KERNELS_CUDA_NUMERICS_H_

namespace muster::kernels::cuda {

// Chosen once per device, for cuDNN and cuBLASLt. Muster's own kernels are always deterministic and
// compute in float32 or double.
struct Numerics {
  // Whether only algorithms are used whose results do not depend on the order in which blocks run.
  bool deterministic = true;
  // Whether float32 convolutions and matrix products may round their operands to TF32, which has 10
  // bits of mantissa, so that they run on tensor cores. Sums remain float32.
  bool tf32 = false;
};

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_NUMERICS_H_
