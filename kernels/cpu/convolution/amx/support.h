// Detects whether this process may use the AMX matrix instructions.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_AMX_SUPPORT_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_AMX_SUPPORT_H_

namespace muster::kernels::cpu {

// Whether the CPU has AMX bfloat16 products and Linux permits this process to use the tile
// registers; the first call requests the permission. Thread-safe.
bool HasAmx();

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_AMX_SUPPORT_H_
