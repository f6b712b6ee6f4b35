// Streams.
#include <cuda_runtime_api.h>

#include <utility>

#include "tests/gpu/ptx/runtime/runtime.h"

using muster::ptx::Call;
using muster::ptx::Needs;
using muster::ptx::Runtime;
using muster::ptx::Stream;

namespace muster::ptx {
namespace {

// Priorities as on recent GPUs.
constexpr int kLowestPriority = 0;
constexpr int kHighestPriority = -5;

// What fake libraries call to queue work (HostStreamAbi::enqueue).
void EnqueueHostWork(HostStreamAbi* abi, HostStreamTask task) {
  Runtime& runtime = Runtime::Get();
  const std::unique_lock<std::mutex> lock(runtime.mutex);
  auto work = MakeHostWork(runtime.memory, task);
  Stream* const stream = runtime.scheduler.Find(abi);
  if (stream == nullptr) {
    runtime.Report("a library queues work in a stream that does not exist");
    return;
  }
  const cudaError_t queued = runtime.Submit(*stream, std::move(work));
  if (queued != cudaSuccess) LastError() = queued;
}

cudaError_t MakeStream(Runtime& runtime, cudaStream_t* made, unsigned flags, int priority) {
  if ((flags & ~unsigned{cudaStreamNonBlocking}) != 0) return cudaErrorInvalidValue;
  Stream* const stream = runtime.scheduler.Make(Runtime::CurrentDevice());
  stream->abi.enqueue = EnqueueHostWork;
  stream->non_blocking = (flags & cudaStreamNonBlocking) != 0;
  // CUDA clamps priorities to the range.
  stream->priority = priority > kLowestPriority    ? kLowestPriority
                     : priority < kHighestPriority ? kHighestPriority
                                                   : priority;
  *made = reinterpret_cast<cudaStream_t>(stream);
  return cudaSuccess;
}

// Whether the calling thread may wait for the stream. If not, the capture in the way is
// invalidated.
cudaError_t CheckMayWait(Runtime& runtime, const Stream* stream) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr) {
    stream->capture->Invalidate();
    return cudaErrorStreamCaptureUnsupported;
  }
  return runtime.CheckUnsafeCall();
}

}  // namespace
}  // namespace muster::ptx

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return Call("cudaStreamCreateWithPriority", Needs::kWorkingDevice, [&](Runtime& runtime) {
    return muster::ptx::MakeStream(runtime, stream, flags, priority);
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return Call("cudaStreamCreateWithFlags", Needs::kWorkingDevice,
              [&](Runtime& runtime) { return muster::ptx::MakeStream(runtime, stream, flags, 0); });
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return Call("cudaStreamCreate", Needs::kWorkingDevice, [&](Runtime& runtime) {
    return muster::ptx::MakeStream(runtime, stream, cudaStreamDefault, 0);
  });
}

// The stream's work still runs.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return Call("cudaStreamDestroy", Needs::kWorkingDevice, [&](Runtime& runtime) {
    Stream* const found = runtime.scheduler.Find(stream);
    if (found == nullptr || found->is_default) return cudaErrorInvalidResourceHandle;
    if (found->capture != nullptr) found->capture->Invalidate();
    found->capture = nullptr;
    runtime.scheduler.Destroy(found);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return Call("cudaStreamGetPriority", Needs::kWorkingDevice, [&](Runtime& runtime) {
    const Stream* const found = runtime.FindStream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    *priority = found->priority;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  return Call("cudaDeviceGetStreamPriorityRange", Needs::kWorkingDevice, [&](Runtime&) {
    *lowest = muster::ptx::kLowestPriority;
    *highest = muster::ptx::kHighestPriority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Call("cudaStreamSynchronize", Needs::kWorkingDevice, [&](Runtime& runtime) {
    Stream* const found = runtime.FindStream(stream);
    const cudaError_t may_wait = muster::ptx::CheckMayWait(runtime, found);
    return may_wait == cudaSuccess ? runtime.WaitFor(found->last) : may_wait;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return Call("cudaStreamQuery", Needs::kWorkingDevice, [&](Runtime& runtime) {
    Stream* const found = runtime.FindStream(stream);
    if (const cudaError_t may_wait = muster::ptx::CheckMayWait(runtime, found);
        may_wait != cudaSuccess) {
      return may_wait;
    }
    const muster::ptx::CompletionPtr last = found->last;
    if (last != nullptr) runtime.scheduler.Advance(*last);
    if (runtime.gpu().fault != cudaSuccess) return runtime.gpu().fault;
    return last == nullptr || last->done ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaDeviceSynchronize(void) {
  return Call("cudaDeviceSynchronize", Needs::kWorkingDevice, [&](Runtime& runtime) {
    const cudaError_t unsafe = runtime.CheckUnsafeCall();
    return unsafe == cudaSuccess ? runtime.WaitForDevice() : unsafe;
  });
}

}  // extern "C"
