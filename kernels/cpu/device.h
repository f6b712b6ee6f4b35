// The CPU as a device, with the kernels of a given instruction set.
#ifndef MUSTER_KERNELS_CPU_DEVICE_H_
#define MUSTER_KERNELS_CPU_DEVICE_H_

#include "kernels/cpu/table/instruction_set.h"
#include "kernels/device.h"

namespace muster::kernels {

// Like CpuDevice(), which uses the best set; the CPU must support `set`.
Device& CpuDevice(InstructionSet set);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CPU_DEVICE_H_
