// Events.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>

#include "tests/gpu/ptx/runtime/runtime.h"

using muster::ptx::Call;
using muster::ptx::Event;
using muster::ptx::Needs;
using muster::ptx::Runtime;
using muster::ptx::Stream;

namespace muster::ptx {
namespace {

// Makes later work of the stream wait for the event in a capture, which the stream joins.
cudaError_t WaitInCapture(Stream& stream, const Event& event) {
  if (event.capture == nullptr) {
    // A dependency on work outside of the capture. An event that was never recorded is none.
    if (event.recorded == nullptr) return cudaSuccess;
    stream.capture->Invalidate();
    return cudaErrorStreamCaptureIsolation;
  }
  if (event.capture->state() == CaptureState::kEnded) return cudaErrorCapturedEvent;
  if (stream.capture != nullptr && stream.capture != event.capture) {
    stream.capture->Invalidate();
    event.capture->Invalidate();
    return cudaErrorStreamCaptureMerge;
  }
  if (event.capture->state() == CaptureState::kInvalidated)
    return cudaErrorStreamCaptureInvalidated;
  if (stream.is_default) return cudaErrorStreamCaptureImplicit;
  stream.capture = event.capture;
  JoinFrontier(event.frontier, stream.frontier);
  return cudaSuccess;
}

// Null, with *error set, if the calling thread may not ask whether the event is done.
Event* FindForQuery(Runtime& runtime, cudaEvent_t event, cudaError_t* error) {
  Event* const found = runtime.FindEvent(event);
  if (found == nullptr) {
    *error = cudaErrorInvalidResourceHandle;
    return nullptr;
  }
  if (found->capture != nullptr) {
    found->capture->Invalidate();
    *error = cudaErrorCapturedEvent;
    return nullptr;
  }
  *error = runtime.CheckUnsafeCall();
  return *error == cudaSuccess ? found : nullptr;
}

cudaError_t FaultOf(Runtime& runtime, const Event& event) {
  return runtime.gpus[static_cast<size_t>(event.device)].fault;
}

}  // namespace
}  // namespace muster::ptx

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return Call("cudaEventCreateWithFlags", Needs::kWorkingDevice, [&](Runtime& runtime) {
    runtime.events.push_back(std::make_unique<Event>());
    runtime.events.back()->device = Runtime::CurrentDevice();
    runtime.events.back()->flags = flags;
    *event = reinterpret_cast<cudaEvent_t>(runtime.events.back().get());
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return Call("cudaEventDestroy", Needs::kWorkingDevice, [&](Runtime& runtime) {
    const auto found = std::find_if(
        runtime.events.begin(), runtime.events.end(),
        [&](const auto& one) { return reinterpret_cast<cudaEvent_t>(one.get()) == event; });
    if (found == runtime.events.end()) return cudaErrorInvalidResourceHandle;
    runtime.events.erase(found);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Call("cudaEventRecord", Needs::kWorkingDevice, [&](Runtime& runtime) {
    Event* const found = runtime.FindEvent(event);
    Stream* const in = runtime.FindStream(stream);
    if (found == nullptr || in == nullptr) return cudaErrorInvalidResourceHandle;
    if (in->device != found->device) return cudaErrorInvalidResourceHandle;
    if (in->capture != nullptr) {
      if (in->capture->state() == muster::ptx::CaptureState::kInvalidated) {
        return cudaErrorStreamCaptureInvalidated;
      }
      found->recorded = nullptr;
      found->capture = in->capture;
      found->frontier = in->frontier;
      return cudaSuccess;
    }
    found->capture = nullptr;
    found->recorded = runtime.scheduler.Push(*in, nullptr);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return Call("cudaStreamWaitEvent", Needs::kWorkingDevice, [&](Runtime& runtime) {
    const Event* const found = runtime.FindEvent(event);
    Stream* const in = runtime.FindStream(stream);
    if (found == nullptr || in == nullptr) return cudaErrorInvalidResourceHandle;
    if (in->capture != nullptr || found->capture != nullptr) {
      return muster::ptx::WaitInCapture(*in, *found);
    }
    // The recording that the stream waits for is the last before this call.
    if (found->recorded != nullptr) runtime.scheduler.Push(*in, nullptr, {found->recorded});
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return Call("cudaEventQuery", Needs::kNothing, [&](Runtime& runtime) {
    cudaError_t error = cudaSuccess;
    const Event* const found = muster::ptx::FindForQuery(runtime, event, &error);
    if (found == nullptr) return error;
    const muster::ptx::CompletionPtr recorded = found->recorded;
    if (recorded != nullptr) runtime.scheduler.Advance(*recorded);
    if (const cudaError_t fault = muster::ptx::FaultOf(runtime, *found); fault != cudaSuccess) {
      return fault;
    }
    return recorded == nullptr || recorded->done ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Call("cudaEventSynchronize", Needs::kNothing, [&](Runtime& runtime) {
    cudaError_t error = cudaSuccess;
    const Event* const found = muster::ptx::FindForQuery(runtime, event, &error);
    if (found == nullptr) return error;
    const int device = found->device;
    runtime.WaitFor(found->recorded);
    return runtime.gpus[static_cast<size_t>(device)].fault;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return Call("cudaEventElapsedTime", Needs::kWorkingDevice, [&](Runtime& runtime) {
    const Event* const first = runtime.FindEvent(begin);
    const Event* const last = runtime.FindEvent(end);
    for (const Event* const event : {first, last}) {
      const bool timed = event != nullptr && (event->flags & cudaEventDisableTiming) == 0;
      if (!timed || event->recorded == nullptr) return cudaErrorInvalidResourceHandle;
    }
    if (!first->recorded->done || !last->recorded->done) return cudaErrorNotReady;
    *milliseconds =
        static_cast<float>(last->recorded->milliseconds - first->recorded->milliseconds);
    return cudaSuccess;
  });
}

}  // extern "C"
