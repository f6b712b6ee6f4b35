// Work that streams and graphs execute: kernels, copies, and host functions of fake libraries.
#ifndef MUSTER_TESTS_GPU_PTX_RUNTIME_WORK_H_
#define MUSTER_TESTS_GPU_PTX_RUNTIME_WORK_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/testing/host_stream_abi.h"
#include "tests/gpu/ptx/execution.h"
#include "tests/gpu/ptx/kernel.h"
#include "tests/gpu/ptx/runtime/global_memory.h"

namespace muster::ptx {

enum class Progress {
  kFinished,
  kAdvanced,  // there is more to do
  kBlocked,   // waits for something outside of this process, such as another rank
};

// Guarded by the runtime's mutex. Arguments are captured by value when the work is created. After
// it has finished, Step begins another run (of a graph).
class Work {
 public:
  virtual ~Work() = default;
  // Makes progress without waiting. An error is a fault of the device.
  virtual absl::StatusOr<Progress> Step() = 0;
};

// A kernel launch; reads kernel.parameters() from `arguments`, as cudaLaunchKernel does.
std::shared_ptr<Work> MakeKernelWork(std::shared_ptr<const Kernel> kernel,
                                     const LaunchConfig& config, void** arguments,
                                     DeviceMemory& memory, Counters& counters);
// A copy between any memory; checks both ranges when it runs.
std::shared_ptr<Work> MakeCopyWork(GlobalMemory& memory, void* to, const void* from, size_t bytes);
// A copy of `bytes` at `from`, which are read now.
std::shared_ptr<Work> MakeStagedCopyWork(GlobalMemory& memory, void* to, const void* from,
                                         size_t bytes);
std::shared_ptr<Work> MakeSetWork(GlobalMemory& memory, void* to, int value, size_t bytes);
// A task of a fake library, with its accesses checked.
std::shared_ptr<Work> MakeHostWork(GlobalMemory& memory, const HostStreamTask& task);
// Ends an allocation (cudaFreeAsync).
std::shared_ptr<Work> MakeFreeWork(DeviceMemory& memory, void* data);

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_RUNTIME_WORK_H_
