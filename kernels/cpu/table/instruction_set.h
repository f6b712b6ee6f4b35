// The x86-64 instruction sets that the CPU kernels are compiled for.
#ifndef MUSTER_KERNELS_CPU_TABLE_INSTRUCTION_SET_H_
#define MUSTER_KERNELS_CPU_TABLE_INSTRUCTION_SET_H_

#include "kernels/kernel_table.h"

namespace muster::kernels {

// Each set includes the previous ones. kPlain is baseline x86-64.
enum class InstructionSet { kPlain, kAvx2, kAvx512, kAvx512Bf16 };

// Returns the best set that the CPU and the operating system support.
InstructionSet DetectInstructionSet();

// The table compiled for `set`, which the CPU must support.
const KernelTable& CpuKernels(InstructionSet set);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CPU_TABLE_INSTRUCTION_SET_H_
