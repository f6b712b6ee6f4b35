// The matrix instructions of AMX, as far as this process may use them.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_AMX_SUPPORT_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_AMX_SUPPORT_H_

namespace muster::kernels::cpu {

// Whether the processor multiplies tiles of bfloat16 and Linux gives this process their registers,
// for which the first call asks. Thread-safe.
bool HasAmx();

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_AMX_SUPPORT_H_
