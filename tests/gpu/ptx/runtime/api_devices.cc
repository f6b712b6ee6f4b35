// Devices and versions.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>

#include "tests/gpu/ptx/runtime/runtime.h"

using muster::ptx::Call;
using muster::ptx::Needs;
using muster::ptx::Runtime;

namespace muster::ptx {

// A GPU of compute capability 9.0 that is small, so that small shapes need several iterations of
// grid-stride loops.
void FillProperties(const Runtime& runtime, cudaDeviceProp& properties) {
  std::memset(static_cast<void*>(&properties), 0, sizeof(properties));
  std::snprintf(properties.name, sizeof(properties.name), "PTX interpreter");
  properties.totalGlobalMem = runtime.memory_bytes;
  properties.sharedMemPerBlock = size_t{48} << 10;
  properties.sharedMemPerMultiprocessor = size_t{228} << 10;
  properties.sharedMemPerBlockOptin = size_t{227} << 10;
  properties.regsPerBlock = 1 << 16;
  properties.regsPerMultiprocessor = 1 << 16;
  properties.warpSize = 32;
  properties.maxThreadsPerBlock = 1024;
  properties.maxThreadsPerMultiProcessor = 2048;
  properties.maxBlocksPerMultiProcessor = 32;
  properties.multiProcessorCount = 1;
  properties.maxThreadsDim[0] = properties.maxThreadsDim[1] = 1024;
  properties.maxThreadsDim[2] = 64;
  properties.maxGridSize[0] = 0x7fffffff;
  properties.maxGridSize[1] = properties.maxGridSize[2] = 0xffff;
  properties.major = 9;
  properties.minor = 0;
  properties.unifiedAddressing = 1;
  properties.concurrentKernels = 1;
  properties.asyncEngineCount = 2;
  properties.streamPrioritiesSupported = 1;
  properties.l2CacheSize = 50 << 20;
  properties.memoryBusWidth = 5120;
}

}  // namespace muster::ptx

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return Call("cudaGetDeviceCount", Needs::kNothing, [&](Runtime& runtime) {
    *count = static_cast<int>(runtime.gpus.size());
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return Call("cudaSetDevice", Needs::kNothing, [&](Runtime& runtime) {
    if (device < 0 || device >= static_cast<int>(runtime.gpus.size())) {
      return cudaErrorInvalidDevice;
    }
    Runtime::CurrentDevice() = device;
    return runtime.gpu().fault;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return Call("cudaGetDevice", Needs::kNothing, [&](Runtime&) {
    *device = Runtime::CurrentDevice();
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* able, int device, int peer) {
  return Call("cudaDeviceCanAccessPeer", Needs::kNothing, [&](Runtime& runtime) {
    const int gpus = static_cast<int>(runtime.gpus.size());
    if (device < 0 || device >= gpus || peer < 0 || peer >= gpus) return cudaErrorInvalidDevice;
    *able = device != peer;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return Call("cudaDeviceEnablePeerAccess", Needs::kNothing, [&](Runtime& runtime) {
    if (peer < 0 || peer >= static_cast<int>(runtime.gpus.size()) ||
        peer == Runtime::CurrentDevice()) {
      return cudaErrorInvalidDevice;
    }
    if (flags != 0) return cudaErrorInvalidValue;
    const bool added = runtime.gpu().peers.insert(peer).second;
    return added ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return Call("cudaGetDeviceProperties", Needs::kNothing, [&](Runtime& runtime) {
    if (device < 0 || device >= static_cast<int>(runtime.gpus.size())) {
      return cudaErrorInvalidDevice;
    }
    muster::ptx::FillProperties(runtime, *properties);
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return Call("cudaDriverGetVersion", Needs::kNothing, [&](Runtime&) {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return Call("cudaRuntimeGetVersion", Needs::kNothing, [&](Runtime&) {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

}  // extern "C"
