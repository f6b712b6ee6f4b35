// Kernel launches: runs the body of a kernel on the GPU or, if compiled by the C++ compiler (see
// elements.h), on the CPU, one thread after the other. With MUSTER_COUNT_LAUNCHES launches are only
// recorded in the LaunchLog.
//
// A body is a trivially copyable struct with the kernel's arguments, passed to the kernel by value.
// It contains no launch or synchronisation code, so that it is also tested without a GPU.
#ifndef MUSTER_KERNELS_CUDA_LAUNCH_LAUNCH_H_
#define MUSTER_KERNELS_CUDA_LAUNCH_LAUNCH_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/launch/elements.h"
#ifdef __CUDACC__
#include "kernels/cuda/launch/context.h"
#else
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/launch_log.h"
#endif

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

inline constexpr int kThreads = 256;  // per block, in every kernel
// Maximum number of blocks of a reduction, about what fills the largest GPU. A constant, so that
// the order of additions depends on shapes alone.
inline constexpr int64_t kReductionBlocks = 1024;

MUSTER_HOST_DEVICE constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
MUSTER_HOST_DEVICE constexpr int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
MUSTER_HOST_DEVICE constexpr int64_t Max(int64_t a, int64_t b) { return a > b ? a : b; }

// Body::State, which each thread keeps in registers from phase to phase; NoState if the body has
// none.
struct NoState {};
template <typename Body>
struct StateOfBody {
  using Type = NoState;
};
template <typename Body>
requires requires { typename Body::State; }
struct StateOfBody<Body> {
  using Type = typename Body::State;
};
template <typename Body>
using StateOf = typename StateOfBody<Body>::Type;

// Body::kBlocksPerMultiprocessor, if it has one: the number of blocks that fit on a multiprocessor,
// which limits the registers of a thread.
template <typename Body>
constexpr int BlocksPerMultiprocessor() {
  if constexpr (requires { Body::kBlocksPerMultiprocessor; }) {
    return Body::kBlocksPerMultiprocessor;
  }
  return 1;
}

// Three functions by which the last of several blocks uses what all of them wrote. Each thread that
// wrote calls PublishWrites; after the block's next synchronisation one of its threads calls
// ArriveLast; after the next one, the threads of the block for which it returned true call
// ReadPublished.

MUSTER_HOST_DEVICE inline void PublishWrites() {
#ifdef __CUDA_ARCH__
  __threadfence();
#endif
}

// Whether this is the last of `arrivals` calls with the counter, which is 0 before the first and
// after the last.
MUSTER_HOST_DEVICE inline bool ArriveLast(uint32_t* counter, uint32_t arrivals) {
#ifdef __CUDA_ARCH__
  const bool last = atomicInc(counter, arrivals - 1) == arrivals - 1;
  __threadfence();
  return last;
#else
  *counter = *counter + 1 == arrivals ? 0 : *counter + 1;
  return *counter == 0;
#endif
}

MUSTER_HOST_DEVICE inline float ReadPublished(const float* value) {
#ifdef __CUDA_ARCH__
  return __ldcg(value);  // bypasses the multiprocessor's own cache
#else
  return *value;
#endif
}

template <typename Body>
MUSTER_HOST_DEVICE void RunPhase(const Body& body, int phase, int64_t block, int thread,
                                 typename Body::Shared& shared, StateOf<Body>& state) {
  if constexpr (std::is_same_v<StateOf<Body>, NoState>) {
    body.Run(phase, block, thread, shared);
  } else {
    body.Run(phase, block, thread, shared, state);
  }
}

// States the bytes that the operation reads and writes, each array once, and the floating-point
// operations of its products with weights, for the LaunchLog. Called before the launch.
inline double ArrayBytes(DataType type, int64_t elements) {
  return static_cast<double>(elements) * static_cast<double>(SizeOf(type));
}
#ifdef __CUDACC__
inline void StateWork(double /*bytes*/, double /*flops*/ = 0) {}
#else
inline void StateWork(double bytes, double flops = 0) {
  LaunchLog::State({.bytes = bytes, .flops = flops});
}
#endif

#ifdef __CUDACC__

template <typename Body>
__global__ void __launch_bounds__(kThreads)
    ItemKernel(const __grid_constant__ Body body, int64_t items) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < items;
       i += stride) {
    body(i);
  }
}

template <typename Body>
__global__ void __launch_bounds__(kThreads, BlocksPerMultiprocessor<Body>())
    BlockKernel(const __grid_constant__ Body body, int64_t blocks) {
  __shared__ typename Body::Shared shared;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    StateOf<Body> state;
#pragma unroll
    for (int phase = 0; phase < Body::kPhases; ++phase) {
      RunPhase(body, phase, block, static_cast<int>(threadIdx.x), shared, state);
      __syncthreads();
    }
  }
}

// Calls body(i) for each i in [0, items). The grid has at most `waves` times the blocks that the
// GPU can run at once; several waves balance the load of bodies whose register use limits
// occupancy.
template <typename Body>
void ForEachItem(int64_t items, const Body& body, int waves = 1) {
  if (items <= 0) return;
  Context& context = CurrentContext();
  const int64_t blocks = Min(CeilDiv(items, kThreads), context.resident_blocks() * waves);
  ItemKernel<<<static_cast<unsigned>(blocks), kThreads, 0, context.stream()>>>(body, items);
  context.Check(cudaGetLastError());
}

// Calls body.Run(phase, block, thread, shared) for each of Body::kPhases phases, each block in
// [0, blocks) and each thread of the block. The threads of a block synchronise between phases.
// `shared` is a Body::Shared in shared memory, uninitialised at first. If the body has a State, the
// thread's own is passed as the last argument.
template <typename Body>
void ForEachBlock(int64_t blocks, const Body& body) {
  if (blocks <= 0) return;
  Context& context = CurrentContext();
  constexpr int64_t kGrid = 1 << 20;
  BlockKernel<<<static_cast<unsigned>(Min(blocks, kGrid)), kThreads, 0, context.stream()>>>(body,
                                                                                            blocks);
  context.Check(cudaGetLastError());
}

// Number of the body's blocks that the GPU runs at once.
template <typename Body>
int64_t ResidentBlocks() {
  return CurrentContext().multiprocessors() * BlocksPerMultiprocessor<Body>();
}

// Counters for ArriveLast, all of them zero; null after an error, which the context records.
inline uint32_t* ZeroedCounters(int64_t count) {
  return CurrentContext().Counters(static_cast<size_t>(count));
}

// Device memory for intermediate results between the kernels of one operation, 256-byte aligned and
// valid until the next call; null after an error, which the context records.
template <typename T>
T* Scratch(int64_t count) {
  return static_cast<T*>(CurrentContext().Scratch(static_cast<size_t>(count) * sizeof(T)));
}

#elif defined(MUSTER_COUNT_LAUNCHES)

template <typename Body>
void ForEachItem(int64_t items, const Body&, int /*waves*/ = 1) {
  if (items > 0) LaunchLog::Record("ItemKernel", TypeText<Body>());
}

template <typename Body>
void ForEachBlock(int64_t blocks, const Body&) {
  if (blocks > 0) LaunchLog::Record("BlockKernel", TypeText<Body>());
}

template <typename Body>
int64_t ResidentBlocks() {
  return kReductionBlocks;
}

inline uint32_t* ZeroedCounters(int64_t) { return reinterpret_cast<uint32_t*>(uintptr_t{256}); }

// An address that is aligned like device memory and never accessed.
template <typename T>
T* Scratch(int64_t) {
  return reinterpret_cast<T*>(uintptr_t{256});
}

#else

template <typename Body>
void ForEachItem(int64_t items, const Body& body, int /*waves*/ = 1) {
  if (items > 0) LaunchLog::Record("ItemKernel", TypeText<Body>());
  for (int64_t i = 0; i < items; ++i) body(i);
}

// Odd blocks run their threads in reverse order, to expose dependencies between the threads of a
// phase. Shared memory and states are filled with NaN, to expose reads of uninitialised memory.
template <typename Body>
void ForEachBlock(int64_t blocks, const Body& body) {
  if (blocks > 0) LaunchLog::Record("BlockKernel", TypeText<Body>());
  const auto shared = std::make_unique<typename Body::Shared>();
  std::vector<StateOf<Body>> states(kThreads);
  for (int64_t block = 0; block < blocks; ++block) {
    std::memset(static_cast<void*>(shared.get()), 0xff, sizeof(*shared));
    std::memset(static_cast<void*>(states.data()), 0xff, kThreads * sizeof(states[0]));
    for (int phase = 0; phase < Body::kPhases; ++phase) {
      for (int i = 0; i < kThreads; ++i) {
        const int thread = block % 2 == 0 ? i : kThreads - 1 - i;
        RunPhase(body, phase, block, thread, *shared, states[thread]);
      }
    }
  }
}

template <typename Body>
int64_t ResidentBlocks() {
  return kReductionBlocks;
}

// Kernels must leave the counters at zero.
inline uint32_t* ZeroedCounters(int64_t count) {
  static thread_local std::vector<uint32_t> counters;
  if (static_cast<int64_t>(counters.size()) < count) counters.resize(count);
  return counters.data();
}

template <typename T>
T* Scratch(int64_t count) {
  static thread_local std::vector<T> scratch;
  scratch.resize(count);
  std::memset(static_cast<void*>(scratch.data()), 0xff, count * sizeof(T));
  return scratch.data();
}

#endif

// Items of ForEachElement: the vectors first, then the remaining elements one by one.
template <typename Body, int kWidth>
struct VectorItems {
  Body body;
  int64_t vectors;
  MUSTER_HOST_DEVICE void operator()(int64_t i) const {
    if (i < vectors) {
      body.template Run<kWidth>(i * kWidth);
    } else {
      body.template Run<1>(vectors * kWidth + (i - vectors));
    }
  }
};

// Calls body.Run<n>(at) for the elements [at, at + n), so that all of [0, count) are covered once.
// n is kWidth or, for the remainder and for arrays that are not `aligned`, 1.
template <int kWidth, typename Body>
void ForEachElement(int64_t count, bool aligned, const Body& body) {
  const int64_t vectors = aligned ? count / kWidth : 0;
  ForEachItem(vectors + (count - vectors * kWidth), VectorItems<Body, kWidth>{body, vectors});
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CUDA_LAUNCH_LAUNCH_H_
