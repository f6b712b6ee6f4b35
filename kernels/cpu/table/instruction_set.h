// The x86-64 instruction sets that the processor's kernels are compiled for.
#ifndef MUSTER_KERNELS_CPU_TABLE_INSTRUCTION_SET_H_
#define MUSTER_KERNELS_CPU_TABLE_INSTRUCTION_SET_H_

#include "kernels/kernel_table.h"

namespace muster::kernels {

// Each includes those before it. kPlain is baseline x86-64.
enum class InstructionSet { kPlain, kAvx2, kAvx512, kAvx512Bf16 };

// The best that this processor and operating system support.
InstructionSet DetectInstructionSet();

// Compiled for `set`, which the processor must support.
const KernelTable& CpuKernels(InstructionSet set);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CPU_TABLE_INSTRUCTION_SET_H_
