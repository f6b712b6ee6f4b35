// The processor as a device, with the kernels of a chosen instruction set.
#ifndef MUSTER_KERNELS_CPU_DEVICE_H_
#define MUSTER_KERNELS_CPU_DEVICE_H_

#include "kernels/cpu/table/instruction_set.h"
#include "kernels/device.h"

namespace muster::kernels {

// As CpuDevice(), which has the best set; the processor must support `set`.
Device& CpuDevice(InstructionSet set);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CPU_DEVICE_H_
