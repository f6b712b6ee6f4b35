// Registration and launches of kernels: what nvcc's host code calls.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gpu/ptx/runtime/runtime.h"

using muster::ptx::Call;
using muster::ptx::Needs;
using muster::ptx::Runtime;

namespace muster::ptx {
namespace {

constexpr size_t kSharedBytes = 48 << 10;  // per block without an opt-in

struct Configuration {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  cudaStream_t stream;
};

// Configurations of launches that the calling thread has begun: <<<...>>> pushes one.
std::vector<Configuration>& Configurations() {
  static thread_local std::vector<Configuration> configurations;
  return configurations;
}

cudaError_t CheckConfiguration(const Kernel& kernel, const Configuration& with) {
  const dim3 &grid = with.grid, &block = with.block;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || threads > 1024 || block.z > 64 ||
      grid.x > 0x7fffffff || grid.y > 0xffff || grid.z > 0xffff) {
    return cudaErrorInvalidConfiguration;
  }
  if (threads > kernel.max_threads) return cudaErrorLaunchOutOfResources;
  if (kernel.static_shared_bytes + with.shared_bytes > kSharedBytes) return cudaErrorInvalidValue;
  return cudaSuccess;
}

cudaError_t Launch(Runtime& runtime, const void* function, const Configuration& with,
                   void** arguments) {
  Stream* const stream = runtime.FindStream(with.stream);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  // A stream of another device.
  if (stream->device != Runtime::CurrentDevice()) return cudaErrorInvalidResourceHandle;
  auto kernel = runtime.kernels.Find(function);
  if (!kernel.ok()) {
    runtime.Report(std::string(kernel.status().message()));
    return absl::IsNotFound(kernel.status()) ? cudaErrorInvalidDeviceFunction
                                             : cudaErrorNoKernelImageForDevice;
  }
  const cudaError_t checked = CheckConfiguration(**kernel, with);
  if (checked != cudaSuccess) return checked;
  const LaunchConfig config = {.grid = {with.grid.x, with.grid.y, with.grid.z},
                               .block = {with.block.x, with.block.y, with.block.z},
                               .dynamic_shared_bytes = with.shared_bytes};
  return runtime.Submit(*stream,
                        MakeKernelWork(*std::move(kernel), config, arguments,
                                       runtime.memory.of(stream->device), runtime.counters));
}

}  // namespace
}  // namespace muster::ptx

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  Runtime& runtime = Runtime::Get();
  const std::unique_lock<std::mutex> lock(runtime.mutex);
  return runtime.kernels.AddFatbin(wrapper);
}

void __cudaRegisterFatBinaryEnd(void**) {}

// Kernels stay registered: the library that contains them contains the runtime.
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void** fatbin, const char* host_function, char*, const char* name, int,
                            uint3*, uint3*, dim3*, dim3*, int*) {
  Runtime& runtime = Runtime::Get();
  const std::unique_lock<std::mutex> lock(runtime.mutex);
  runtime.kernels.AddFunction(fatbin, host_function, name);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     cudaStream_t stream) {
  muster::ptx::Configurations().push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                       void* stream) {
  auto& configurations = muster::ptx::Configurations();
  if (configurations.empty()) return cudaErrorMissingConfiguration;
  const muster::ptx::Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}

// A cudaKernel_t is the address of the host function.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host_function));
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t stream) {
  return Call("cudaLaunchKernel", Needs::kWorkingDevice, [&](Runtime& runtime) {
    return muster::ptx::Launch(runtime, function, {grid, block, shared_bytes, stream}, arguments);
  });
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments,
                          shared_bytes, stream);
}

// As many blocks as fill the threads of a multiprocessor; registers are not modelled.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                   const void* function,
                                                                   int block_threads,
                                                                   size_t shared_bytes, unsigned) {
  return Call("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", Needs::kWorkingDevice,
              [&](Runtime& runtime) {
                cudaDeviceProp properties;
                muster::ptx::FillProperties(runtime, properties);
                if (!runtime.kernels.Contains(function)) return cudaErrorInvalidDeviceFunction;
                if (block_threads <= 0 || shared_bytes > properties.sharedMemPerBlock) {
                  return cudaErrorInvalidValue;
                }
                *blocks = properties.maxThreadsPerMultiProcessor / block_threads;
                return cudaSuccess;
              });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int block_threads, size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_threads,
                                                                shared_bytes, 0);
}

}  // extern "C"
