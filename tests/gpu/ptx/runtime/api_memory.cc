// Memory: allocations, copies and fills.
#include <cuda_runtime_api.h>

#include <cstring>
#include <string>
#include <utility>

#include "tests/gpu/ptx/runtime/runtime.h"

using muster::ptx::Call;
using muster::ptx::DeviceMemory;
using muster::ptx::Needs;
using muster::ptx::Place;
using muster::ptx::Runtime;
using muster::ptx::Stream;

namespace muster::ptx {
namespace {

cudaError_t Allocate(Runtime& runtime, void** data, size_t bytes) {
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  DeviceMemory& memory = runtime.device_memory();
  const size_t used = memory.allocated_bytes();
  if (used > runtime.memory_bytes || bytes > runtime.memory_bytes - used) {
    return cudaErrorMemoryAllocation;
  }
  const auto allocated = memory.Allocate(bytes);
  if (!allocated.ok()) return cudaErrorMemoryAllocation;
  *data = *allocated;
  return cudaSuccess;
}

// Refuses what CUDA refuses when the copy is queued: a range that exceeds its allocation, and a
// direction that contradicts the addresses.
cudaError_t CheckArguments(Runtime& runtime, const void* to, const void* from, size_t bytes,
                           cudaMemcpyKind kind) {
  for (const absl::Status& checked :
       {runtime.memory.CheckWrite(to, bytes), runtime.memory.CheckWrite(from, bytes)}) {
    if (checked.ok()) continue;
    runtime.Report(std::string(checked.message()));
    return cudaErrorInvalidValue;
  }
  const bool to_device = runtime.memory.PlaceOf(to) == Place::kDevice;
  const bool from_device = runtime.memory.PlaceOf(from) == Place::kDevice;
  switch (kind) {
    case cudaMemcpyDefault:
      return cudaSuccess;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemcpyHostToHost:
      return !to_device && !from_device ? cudaSuccess : cudaErrorInvalidValue;
  }
  return cudaErrorInvalidMemcpyDirection;
}

// Pageable sources are staged before the call returns, and copies to pageable memory are complete
// when it returns. Neither can be captured.
cudaError_t Copy(Runtime& runtime, void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                 Stream* stream) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  if (const cudaError_t checked = CheckArguments(runtime, to, from, bytes, kind);
      checked != cudaSuccess) {
    return checked;
  }
  const bool pageable_from = runtime.memory.PlaceOf(from) == Place::kPageable;
  const bool pageable_to = runtime.memory.PlaceOf(to) == Place::kPageable;
  if (stream->capture != nullptr && (pageable_from || pageable_to)) {
    stream->capture->Invalidate();
    return cudaErrorStreamCaptureUnsupported;
  }
  const cudaError_t queued =
      runtime.Submit(*stream, pageable_from ? MakeStagedCopyWork(runtime.memory, to, from, bytes)
                                            : MakeCopyWork(runtime.memory, to, from, bytes));
  if (queued != cudaSuccess || !pageable_to) return queued;
  return runtime.WaitFor(stream->last);
}

cudaError_t Set(Runtime& runtime, void* to, int value, size_t bytes, Stream* stream) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  if (const absl::Status checked = runtime.memory.CheckDeviceWrite(to, bytes); !checked.ok()) {
    runtime.Report(std::string(checked.message()));
    return cudaErrorInvalidValue;
  }
  return runtime.Submit(*stream, MakeSetWork(runtime.memory, to, value, bytes));
}

}  // namespace
}  // namespace muster::ptx

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return Call("cudaMalloc", Needs::kWorkingDevice, [&](Runtime& runtime) {
    if (const cudaError_t unsafe = runtime.CheckUnsafeCall(); unsafe != cudaSuccess) return unsafe;
    return muster::ptx::Allocate(runtime, data, bytes);
  });
}

// Waits for the device, as NVIDIA's runtime does.
cudaError_t cudaFree(void* data) {
  return Call("cudaFree", Needs::kWorkingDevice, [&](Runtime& runtime) {
    if (data == nullptr) return cudaSuccess;
    if (const cudaError_t unsafe = runtime.CheckUnsafeCall(); unsafe != cudaSuccess) return unsafe;
    const cudaError_t waited = runtime.WaitForDevice();
    DeviceMemory* const memory = runtime.memory.DeviceOf(data);
    if (memory == nullptr) return cudaErrorInvalidValue;
    if (const absl::Status freed = memory->Free(data); !freed.ok()) {
      runtime.Report(std::string(freed.message()));
      return cudaErrorInvalidValue;
    }
    return waited;
  });
}

// Stream-ordered allocation: the memory exists at once, and its end is queued.
cudaError_t cudaMallocAsync(void** data, size_t bytes, cudaStream_t stream) {
  return Call("cudaMallocAsync", Needs::kWorkingDevice, [&](Runtime& runtime) {
    Stream* const in = runtime.FindStream(stream);
    if (in == nullptr) return cudaErrorInvalidResourceHandle;
    if (in->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
    return muster::ptx::Allocate(runtime, data, bytes);
  });
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  return Call("cudaFreeAsync", Needs::kWorkingDevice, [&](Runtime& runtime) {
    Stream* const in = runtime.FindStream(stream);
    if (in == nullptr) return cudaErrorInvalidResourceHandle;
    if (in->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
    DeviceMemory* const memory = runtime.memory.DeviceOf(data);
    if (memory == nullptr) return cudaErrorInvalidValue;
    return runtime.Submit(*in, muster::ptx::MakeFreeWork(*memory, data));
  });
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return Call("cudaHostAlloc", Needs::kWorkingDevice, [&](Runtime& runtime) {
    *data = nullptr;
    if (const cudaError_t unsafe = runtime.CheckUnsafeCall(); unsafe != cudaSuccess) return unsafe;
    if (bytes == 0) return cudaSuccess;
    // A machine has hardly more host memory than a few devices have.
    if (bytes / 16 > runtime.memory_bytes) return cudaErrorMemoryAllocation;
    const auto allocated = runtime.memory.AllocateHost(bytes);
    if (!allocated.ok()) return cudaErrorMemoryAllocation;
    *data = *allocated;
    return cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  return cudaHostAlloc(data, bytes, cudaHostAllocDefault);
}

// Waits for all devices, as NVIDIA's runtime does.
cudaError_t cudaFreeHost(void* data) {
  return Call("cudaFreeHost", Needs::kWorkingDevice, [&](Runtime& runtime) {
    if (data == nullptr) return cudaSuccess;
    if (const cudaError_t unsafe = runtime.CheckUnsafeCall(); unsafe != cudaSuccess) return unsafe;
    for (size_t device = 0; device < runtime.gpus.size(); ++device) {
      for (const auto& last : runtime.scheduler.LastOf(static_cast<int>(device))) {
        runtime.WaitFor(last);
      }
    }
    return runtime.memory.FreeHost(data).ok() ? runtime.gpu().fault : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return Call("cudaMemGetInfo", Needs::kWorkingDevice, [&](Runtime& runtime) {
    const size_t used = runtime.device_memory().allocated_bytes();
    *total = runtime.memory_bytes;
    *free = used < *total ? *total - used : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return Call("cudaMemcpyAsync", Needs::kWorkingDevice, [&](Runtime& runtime) {
    return muster::ptx::Copy(runtime, to, from, bytes, kind, runtime.FindStream(stream));
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return Call("cudaMemcpy", Needs::kWorkingDevice, [&](Runtime& runtime) {
    if (const cudaError_t unsafe = runtime.CheckUnsafeCall(); unsafe != cudaSuccess) return unsafe;
    Stream* const stream = runtime.FindStream(nullptr);
    const cudaError_t queued = muster::ptx::Copy(runtime, to, from, bytes, kind, stream);
    return queued == cudaSuccess ? runtime.WaitFor(stream->last) : queued;
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return Call("cudaMemsetAsync", Needs::kWorkingDevice, [&](Runtime& runtime) {
    return muster::ptx::Set(runtime, to, value, bytes, runtime.FindStream(stream));
  });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return Call("cudaMemset", Needs::kWorkingDevice, [&](Runtime& runtime) {
    if (const cudaError_t unsafe = runtime.CheckUnsafeCall(); unsafe != cudaSuccess) return unsafe;
    return muster::ptx::Set(runtime, to, value, bytes, runtime.FindStream(nullptr));
  });
}

}  // extern "C"
