// The kernel tables that the contract tests run with.
#ifndef MUSTER_KERNELS_CONTRACT_KERNEL_SET_H_
#define MUSTER_KERNELS_CONTRACT_KERNEL_SET_H_

#include <string>
#include <vector>

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
  kCudaPtx,     // their PTX, interpreted on the CPU (//tests/gpu/ptx)
};

std::string NameOf(KernelSet set);

// The sets, and kCudaPtx in tests that have the interpreter's library among their data. It is slow:
// such tests select cases by name.
std::vector<KernelSet> WithCudaPtx(std::vector<KernelSet> sets);
// Whether the interpreter's library is there, and its path.
bool HasCudaPtxLibrary();
std::string CudaPtxLibrary();

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
