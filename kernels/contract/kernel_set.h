// The kernel tables that the contract tests run with.
#ifndef MUSTER_KERNELS_CONTRACT_KERNEL_SET_H_
#define MUSTER_KERNELS_CONTRACT_KERNEL_SET_H_

#include <string>

#include "absl/status/statusor.h"
#include "kernels/contract/test_buffer.h"
#include "kernels/kernel_table.h"

namespace muster::kernels {

enum class KernelSet {
  kPlain,
  kAvx2,
  kAvx512,
  kAvx512Bf16,
  kCudaOnHost,  // the CUDA kernels compiled for the CPU
  kCuda,        // on the first GPU
};

std::string NameOf(KernelSet set);

struct KernelSetUse {
  const KernelTable* kernels;
  TestMemory memory;  // accessible to these kernels
};

// Argument of kernels::OpenCudaDevice in tests; empty if the library is in its default place.
std::string CudaLibraryOfTests();

// The table's functions have finished when they return; an error of a GPU ends the process. Fails
// with the reason if the set cannot run on this machine.
absl::StatusOr<KernelSetUse> UseKernelSet(KernelSet set);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CONTRACT_KERNEL_SET_H_
