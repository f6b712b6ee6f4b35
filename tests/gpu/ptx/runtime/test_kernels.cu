#include "tests/gpu/ptx/runtime/test_kernels.h"

namespace muster::ptx {
namespace {

int Blocks(int n) { return (n + kBlockThreads - 1) / kBlockThreads; }

__global__ void Add(const float* from, float addend, float* to, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) to[i] = from[i] + addend;
}

__global__ void AddOffByOne(const float* from, float addend, float* to, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i <= n) to[i] = from[i] + addend;
}

template <bool kHasBarrier>
__global__ void Reverse(float* data) {
  __shared__ float block[kBlockThreads];
  float* const own = data + blockIdx.x * kBlockThreads;
  block[threadIdx.x] = own[threadIdx.x];
  if (kHasBarrier) __syncthreads();
  own[threadIdx.x] = block[kBlockThreads - 1 - threadIdx.x];
}

__global__ void StoreToOne(float* to) { *to = static_cast<float>(threadIdx.x); }

__global__ void __launch_bounds__(256) StoreThread(float* to) {
  if (threadIdx.x == 0) to[0] = 1;
}

}  // namespace

cudaError_t LaunchAdd(const float* from, float addend, float* to, int n, cudaStream_t stream) {
  Add<<<Blocks(n), kBlockThreads, 0, stream>>>(from, addend, to, n);
  return cudaGetLastError();
}

cudaError_t LaunchAddOffByOne(const float* from, float addend, float* to, int n,
                              cudaStream_t stream) {
  AddOffByOne<<<Blocks(n + 1), kBlockThreads, 0, stream>>>(from, addend, to, n);
  return cudaGetLastError();
}

cudaError_t LaunchReverse(float* data, int n, bool has_barrier, cudaStream_t stream) {
  const auto kernel = has_barrier ? Reverse<true> : Reverse<false>;
  kernel<<<n / kBlockThreads, kBlockThreads, 0, stream>>>(data);
  return cudaGetLastError();
}

cudaError_t LaunchStoreToOne(float* to, cudaStream_t stream) {
  StoreToOne<<<1, kBlockThreads, 0, stream>>>(to);
  return cudaGetLastError();
}

cudaError_t LaunchWithThreads(float* to, int threads, cudaStream_t stream) {
  StoreThread<<<1, threads, 0, stream>>>(to);
  return cudaGetLastError();
}

const void* AddFunction() { return reinterpret_cast<const void*>(&Add); }

}  // namespace muster::ptx
