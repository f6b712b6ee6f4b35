// The kernel tables that contract tests run with.
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
  kCudaOnHost,  // the CUDA kernels' code, run by the processor
  kCuda,        // on the first GPU
};

std::string NameOf(KernelSet set);

struct KernelSetUse {
  const KernelTable* kernels;
  TestMemory memory;  // what these kernels reach
};

// For kernels::OpenCudaDevice: the library that a test finds, empty where it lies beside it.
std::string CudaLibraryOfTests();

// Functions of the table have done their work when they return; an error of a GPU ends the process.
// The status says why the set does not run on this machine.
absl::StatusOr<KernelSetUse> UseKernelSet(KernelSet set);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CONTRACT_KERNEL_SET_H_
