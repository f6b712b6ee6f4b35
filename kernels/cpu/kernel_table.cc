#include "kernels/kernel_table.h"

namespace muster::kernels {

namespace plain {
extern const KernelTable kKernels;
}
namespace avx2 {
extern const KernelTable kKernels;
}
namespace avx512 {
extern const KernelTable kKernels;
}

InstructionSet DetectInstructionSet() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return InstructionSet::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return InstructionSet::kAvx2;
  }
  return InstructionSet::kPlain;
}

const KernelTable& CpuKernels(InstructionSet set) {
  switch (set) {
    case InstructionSet::kAvx512:
      return avx512::kKernels;
    case InstructionSet::kAvx2:
      return avx2::kKernels;
    case InstructionSet::kPlain:
      return plain::kKernels;
  }
  return plain::kKernels;
}

const KernelTable& CpuKernels() {
  static const KernelTable& best = CpuKernels(DetectInstructionSet());
  return best;
}

void SgdStep(const SgdOptions& options, float* parameters, float* velocities,
             const float* gradients, size_t count) {
  CpuKernels().sgd_step(options, parameters, velocities, gradients, count);
}

void AdamWStep(const AdamWOptions& options, float* parameters, float* exp_avg, float* exp_avg_sq,
               const float* gradients, size_t count) {
  CpuKernels().adamw_step(options, parameters, exp_avg, exp_avg_sq, gradients, count);
}

double SumOfSquares(const float* x, size_t count) { return CpuKernels().sum_of_squares(x, count); }

void Lerp(float weight, const float* x, float* y, size_t count) {
  CpuKernels().lerp(weight, x, y, count);
}

}  // namespace muster::kernels
