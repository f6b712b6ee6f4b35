// Kernels for tests of the substitute CUDA runtime, some of them faulty.
#ifndef MUSTER_TESTS_GPU_PTX_RUNTIME_TEST_KERNELS_H_
#define MUSTER_TESTS_GPU_PTX_RUNTIME_TEST_KERNELS_H_

#include <cuda_runtime_api.h>

namespace muster::ptx {

inline constexpr int kBlockThreads = 64;

// Arrays of n floats in device or pinned memory. Launches return cudaGetLastError().

// to = from + addend
cudaError_t LaunchAdd(const float* from, float addend, float* to, int n, cudaStream_t stream);
// The same, but also accesses element n.
cudaError_t LaunchAddOffByOne(const float* from, float addend, float* to, int n,
                              cudaStream_t stream);
// Reverses each block of kBlockThreads floats through shared memory; without a barrier, threads
// race.
cudaError_t LaunchReverse(float* data, int n, bool has_barrier, cudaStream_t stream);
// All threads write to the same element.
cudaError_t LaunchStoreToOne(float* to, cudaStream_t stream);
// Launches with `threads` per block.
cudaError_t LaunchWithThreads(float* to, int threads, cudaStream_t stream);
// The kernel of LaunchAdd, with the parameters (const float*, float, float*, int).
const void* AddFunction();

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_RUNTIME_TEST_KERNELS_H_
