// The last error, and names of errors.
#include <cuda_runtime_api.h>

#include "tests/gpu/ptx/runtime/runtime.h"

using muster::ptx::LastError;
using muster::ptx::Runtime;

namespace muster::ptx {
namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define MUSTER_ERROR(name, text) \
  { name, #name, text }
constexpr ErrorText kErrors[] = {
    MUSTER_ERROR(cudaSuccess, "no error"),
    MUSTER_ERROR(cudaErrorInvalidValue, "invalid argument"),
    MUSTER_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    MUSTER_ERROR(cudaErrorInitializationError, "initialization error"),
    MUSTER_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    MUSTER_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    MUSTER_ERROR(cudaErrorInsufficientDriver, "driver too old for the runtime"),
    MUSTER_ERROR(cudaErrorMissingConfiguration, "launch without a configuration"),
    MUSTER_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    MUSTER_ERROR(cudaErrorNoDevice, "no CUDA-capable device"),
    MUSTER_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    MUSTER_ERROR(cudaErrorNoKernelImageForDevice, "no usable code of the kernel"),
    MUSTER_ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error"),
    MUSTER_ERROR(cudaErrorIllegalState, "illegal state for the operation"),
    MUSTER_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    MUSTER_ERROR(cudaErrorNotReady, "device not ready"),
    MUSTER_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    MUSTER_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    MUSTER_ERROR(cudaErrorLaunchTimeout, "the launch timed out"),
    MUSTER_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    MUSTER_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    MUSTER_ERROR(cudaErrorStreamCaptureUnsupported, "not permitted during stream capture"),
    MUSTER_ERROR(cudaErrorStreamCaptureInvalidated, "the capture failed earlier"),
    MUSTER_ERROR(cudaErrorStreamCaptureMerge, "a dependency between two captures"),
    MUSTER_ERROR(cudaErrorStreamCaptureUnmatched, "the capture did not begin in this stream"),
    MUSTER_ERROR(cudaErrorStreamCaptureUnjoined, "the capture has unjoined work"),
    MUSTER_ERROR(cudaErrorStreamCaptureIsolation, "a dependency on work outside of the capture"),
    MUSTER_ERROR(cudaErrorStreamCaptureImplicit, "a dependency on the legacy default stream"),
    MUSTER_ERROR(cudaErrorCapturedEvent, "not permitted on an event last recorded in a capture"),
    MUSTER_ERROR(cudaErrorStreamCaptureWrongThread, "the capture began in another thread"),
};
#undef MUSTER_ERROR

const ErrorText& TextOf(cudaError_t error) {
  static constexpr ErrorText kUnknown = {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
  for (const ErrorText& one : kErrors) {
    if (one.error == error) return one;
  }
  return kUnknown;
}

// The thread's last error, or its device's fault, which no call clears.
cudaError_t PendingError() {
  Runtime& runtime = Runtime::Get();
  const std::unique_lock<std::mutex> lock(runtime.mutex);
  return runtime.gpu().fault != cudaSuccess ? runtime.gpu().fault : LastError();
}

}  // namespace
}  // namespace muster::ptx

extern "C" {

const char* cudaGetErrorString(cudaError_t error) { return muster::ptx::TextOf(error).text; }

const char* cudaGetErrorName(cudaError_t error) { return muster::ptx::TextOf(error).name; }

cudaError_t cudaGetLastError(void) {
  const cudaError_t error = muster::ptx::PendingError();
  LastError() = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void) { return muster::ptx::PendingError(); }

}  // extern "C"
