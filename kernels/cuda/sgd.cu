#include "kernels/cuda/sgd.h"

#include <cuda_runtime.h>

#include <algorithm>

#define MUSTER_INSTRUCTION_SET cuda
#include "kernels/functors.h"

namespace muster::kernels::cuda {
namespace {

// A grid-stride loop: the grid is sized to the device, not to the array.
__global__ void SgdKernel(SgdFunctor<float> step, float* parameters, float* velocities,
                          const float* gradients, size_t count) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    float velocity = velocities != nullptr ? velocities[i] : 0.0f;
    step(parameters[i], velocity, gradients[i]);
    if (velocities != nullptr) velocities[i] = velocity;
  }
}

}  // namespace
}  // namespace muster::kernels::cuda

extern "C" int MusterCudaDeviceCount(const char** error) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess) return count;
  *error = cudaGetErrorString(status);
  return 0;
}

extern "C" int MusterCudaSgdStep(float learning_rate, float momentum, float weight_decay, int nesterov,
                                 float gradient_scale, float* parameters, float* velocities,
                                 const float* gradients, size_t count, void* stream) {
  using muster::kernels::cuda::SgdFunctor;
  if (count == 0) return cudaSuccess;
  int device = 0;
  int multiprocessors = 0;
  if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess) return status;
  if (const cudaError_t status =
          cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
      status != cudaSuccess) {
    return status;
  }
  constexpr unsigned kThreads = 256;
  constexpr unsigned kBlocksPerMultiprocessor = 8;
  const size_t blocks = std::min<size_t>((count + kThreads - 1) / kThreads,
                                         static_cast<size_t>(multiprocessors) * kBlocksPerMultiprocessor);
  muster::kernels::cuda::SgdKernel<<<static_cast<unsigned>(blocks), kThreads, 0,
                                     static_cast<cudaStream_t>(stream)>>>(
      SgdFunctor<float>{learning_rate, momentum, weight_decay, gradient_scale, nesterov != 0}, parameters,
      velocities, gradients, count);
  return cudaGetLastError();
}
