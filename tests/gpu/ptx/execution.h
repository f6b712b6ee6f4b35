// Runs kernels of a parsed PTX module on the CPU, with all memory accesses checked.
//
// It finds, in the code that nvcc generated: accesses out of bounds, misaligned or to freed memory;
// reads of uninitialised memory and registers; data races between the threads of a block and
// between blocks; barriers that not all threads of a block reach; and loops without end.
//
// It does not prove: the machine code that ptxas makes of the PTX, timing, occupancy or register
// limits; NVIDIA's libraries; the memory model beyond barriers, and beyond fences with atomic
// operations between blocks (block_order.h). Results on a GPU may differ for approximate
// instructions (ex2.approx and others), which are rounded correctly here, and where ptxas fuses a
// mul and an add without rounding modifiers.
#ifndef MUSTER_TESTS_GPU_PTX_EXECUTION_H_
#define MUSTER_TESTS_GPU_PTX_EXECUTION_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tests/gpu/ptx/kernel.h"
#include "tests/gpu/ptx/memory.h"

namespace muster::ptx {

struct Dim3 {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

struct LaunchConfig {
  Dim3 grid;
  Dim3 block;
  size_t dynamic_shared_bytes = 0;
  // Instructions that one thread may execute before the launch counts as an infinite loop.
  uint64_t max_instructions_per_thread = uint64_t{1} << 30;
};

// Totals over launches.
struct Counters {
  uint64_t launches = 0;
  uint64_t blocks = 0;
  uint64_t threads = 0;
  uint64_t instructions = 0;
};

// Runs all blocks of a kernel, one after the other in the calling thread. `arguments` has the
// address of each argument's value, as for cudaLaunchKernel: kernel.parameters()[i].bytes are read
// from arguments[i]; if the caller does not know their number, it passes that of the kernel's
// parameters. One launch at a time may use `memory`.
//
// INVALID_ARGUMENT for a configuration that a GPU would refuse or a wrong number of arguments. A
// fault ends the launch: OUT_OF_RANGE for an access out of bounds, FAILED_PRECONDITION for freed or
// uninitialised memory, INVALID_ARGUMENT for a misaligned access, ABORTED for a data race or a
// divergent barrier, DEADLINE_EXCEEDED for the limit of instructions. Its message names the kernel,
// block, thread and PTX line with text, and the address and allocation.
absl::Status Run(const Kernel& kernel, const LaunchConfig& config,
                 absl::Span<const void* const> arguments, DeviceMemory& memory,
                 Counters* counters = nullptr);

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_EXECUTION_H_
