#include "kernels/cpu/table/instruction_set.h"

#include <cpuid.h>

#include "kernels/cpu/convolution/dense_kernels.h"

namespace muster::kernels {

namespace plain {
extern const KernelTable kKernels;
extern const cpu::DenseKernels kDenseKernels;
}  // namespace plain
namespace avx2 {
extern const KernelTable kKernels;
extern const cpu::DenseKernels kDenseKernels;
}  // namespace avx2
namespace avx512 {
extern const KernelTable kKernels;
extern const cpu::DenseKernels kDenseKernels;
}  // namespace avx512
namespace avx512_bf16 {
extern const KernelTable kKernels;
extern const cpu::DenseKernels kDenseKernels;
}  // namespace avx512_bf16

namespace {

// __builtin_cpu_supports does not know it in all compilers. The registers are those of AVX-512,
// whose operating system support is already checked.
bool HasBfloat16Instructions() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 5 & 1) != 0;
}

bool HasFloat16Conversions() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1) != 0;
}

}  // namespace

InstructionSet DetectInstructionSet() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return HasBfloat16Instructions() ? InstructionSet::kAvx512Bf16 : InstructionSet::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasFloat16Conversions()) {
    return InstructionSet::kAvx2;
  }
  return InstructionSet::kPlain;
}

const KernelTable& CpuKernels(InstructionSet set) {
  switch (set) {
    case InstructionSet::kAvx512Bf16:
      return avx512_bf16::kKernels;
    case InstructionSet::kAvx512:
      return avx512::kKernels;
    case InstructionSet::kAvx2:
      return avx2::kKernels;
    case InstructionSet::kPlain:
      return plain::kKernels;
  }
  return plain::kKernels;
}

const cpu::DenseKernels& cpu::DenseKernelsOf(InstructionSet set) {
  switch (set) {
    case InstructionSet::kAvx512Bf16:
      return avx512_bf16::kDenseKernels;
    case InstructionSet::kAvx512:
      return avx512::kDenseKernels;
    case InstructionSet::kAvx2:
      return avx2::kDenseKernels;
    case InstructionSet::kPlain:
      return plain::kDenseKernels;
  }
  return plain::kDenseKernels;
}

const KernelTable& CpuKernels() {
  static const KernelTable& best = CpuKernels(DetectInstructionSet());
  return best;
}

}  // namespace muster::kernels
