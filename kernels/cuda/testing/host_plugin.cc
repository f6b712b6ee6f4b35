// A libmuster-cuda.so with one fake GPU, for tests on machines without a GPU. Device memory is the
// process's memory, and kernels are the CUDA kernels compiled for the CPU. Work of the context's
// stream is complete when a call returns; work of other streams is queued in a HostQueue.
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "kernels/cuda/plugin/plugin.h"
#include "kernels/cuda/testing/on_host.h"
#include "kernels/testing/host_queue.h"
#include "kernels/testing/immediate_stream.h"

struct MusterCudaContext {
  muster::kernels::ImmediateStream stream;
};
struct MusterCudaEvent {
  muster::kernels::HostQueue* queue = nullptr;  // null: the context's stream, which is complete
  uint64_t tasks = 0;
};

namespace muster::kernels {
namespace {

constexpr size_t kAlignment = 256;               // as CUDA guarantees
constexpr size_t kFreeMemory = size_t{1} << 30;  // constant, regardless of allocations

// Bytes, which FAKE_CUDA_LARGEST_ARRAY overrides.
size_t LargestArray() {
  const char* const set = std::getenv("FAKE_CUDA_LARGEST_ARRAY");
  return set == nullptr ? size_t{1} << 40 : std::strtoull(set, nullptr, 10);
}

int DeviceCount(const char**) { return 1; }

const char* Open(int, MusterCudaContext** context) {
  *context = new MusterCudaContext;
  return nullptr;
}

void Close(MusterCudaContext* context) { delete context; }

void Enter(MusterCudaContext*) {}

const char* DeviceName(const MusterCudaContext*) { return "host"; }

const char* AllocateHost(MusterCudaContext*, size_t bytes, void** data) {
  if (bytes > LargestArray()) return "out of memory";
  *data = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
  return *data == nullptr ? "out of memory" : nullptr;
}

void Release(MusterCudaContext*, void* data) { std::free(data); }

void Copy(MusterCudaContext*, void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void Zero(MusterCudaContext*, void* to, size_t bytes) {
  if (bytes > 0) std::memset(to, 0, bytes);
}

const char* Allocate(MusterCudaContext* context, size_t bytes, void** data) {
  const char* const error = AllocateHost(context, bytes, data);
  if (error == nullptr) Zero(context, *data, bytes);
  return error;
}

// Set by MusterHostPluginFail.
const char* first_error = nullptr;
size_t refused_scratch_bytes = 0;

const char* Synchronize(MusterCudaContext*) { return first_error; }

const char* Error(MusterCudaContext*, size_t* refused_bytes) {
  *refused_bytes = refused_scratch_bytes;
  return first_error;
}

const char* FreeMemory(MusterCudaContext*, size_t* bytes) {
  *bytes = kFreeMemory;
  return nullptr;
}

MusterCudaEvent* MakeEvent(MusterCudaContext*) { return new MusterCudaEvent; }
void ReleaseEvent(MusterCudaContext*, MusterCudaEvent* event) { delete event; }
void RecordEvent(MusterCudaContext*, MusterCudaEvent*) {}
int EventDone(MusterCudaEvent*) { return 1; }
const char* WaitForEvent(MusterCudaEvent*) { return nullptr; }

void* Stream(MusterCudaContext* context) { return context->stream.native(); }

// All candidates are equally fast, and so slow that one run warms up the GPU.
const char* Time(MusterCudaContext*, void (*work)(void*), void* argument, float* milliseconds) {
  work(argument);
  *milliseconds = 1000;
  return nullptr;
}

// As if devices 0 and 1 were connected, and device 2 were not.
int EnablePeerAccess(int ordinal, int peer) { return ordinal + peer == 1 ? 1 : 0; }

int DriverVersion() { return 13000; }

const char* UseDevice(const MusterCudaContext*) { return nullptr; }

// The additional streams, by their addresses. A stream's work progresses when its state is queried.
class Streams {
 public:
  void* Make() {
    auto queue = std::make_unique<HostQueue>();
    void* const stream = queue->native();
    const std::lock_guard<std::mutex> lock(mutex_);
    queues_[stream] = std::move(queue);
    return stream;
  }
  void Release(void* stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    queues_.erase(stream);
  }
  // Returns null for the context's stream.
  HostQueue* Find(void* stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = queues_.find(stream);
    return found == queues_.end() ? nullptr : found->second.get();
  }

 private:
  std::mutex mutex_;
  std::map<void*, std::unique_ptr<HostQueue>> queues_;
};

Streams& TheStreams() {
  static Streams& streams = *new Streams;
  return streams;
}

const char* MakeStream(void** stream) {
  *stream = TheStreams().Make();
  return nullptr;
}

const char* ReleaseStream(void* stream) {
  TheStreams().Release(stream);
  return nullptr;
}

const char* MakeStreamEvent(MusterCudaEvent** event) {
  *event = new MusterCudaEvent;
  return nullptr;
}

void ReleaseStreamEvent(MusterCudaEvent* event) { delete event; }

const char* RecordOnStream(void* stream, MusterCudaEvent* event) {
  event->queue = TheStreams().Find(stream);
  event->tasks = event->queue == nullptr ? 0 : event->queue->given();
  return nullptr;
}

const char* StreamWaitEvent(void* stream, MusterCudaEvent* event) {
  if (TheStreams().Find(stream) == nullptr && event->queue != nullptr) {
    event->queue->Await(event->tasks);
  }
  return nullptr;
}

const char* QueryStreamEvent(MusterCudaEvent* event, int* reached) {
  *reached = event->queue == nullptr || event->queue->Reached(event->tasks) ? 1 : 0;
  return nullptr;
}

const char* CopyOnStream(void* stream, void* to, const void* from, size_t bytes) {
  TheStreams().Find(stream)->Push([=] {
    Copy(nullptr, to, from, bytes);
    return true;
  });
  return nullptr;
}

const char* AllocateUninitialized(size_t bytes, void** data) {
  return AllocateHost(nullptr, bytes, data);
}

void ReleaseUninitialized(void* data) { std::free(data); }

}  // namespace
}  // namespace muster::kernels

// Sets the GPU's first error (null: none) and, if it is that of an allocation, the bytes.
extern "C" void MusterHostPluginFail(const char* error, size_t refused_bytes) {
  muster::kernels::first_error = error;
  muster::kernels::refused_scratch_bytes = refused_bytes;
}

extern "C" const MusterCudaApi* MusterCudaGetApi(void) {
  using namespace muster::kernels;
  static const MusterCudaApi api = {
      .abi = MUSTER_CUDA_ABI,
      .kernel_table_bytes = sizeof(KernelTable),
      .kernels = &CudaKernelsOnHost(),
      .device_count = DeviceCount,
      .open = Open,
      .close = Close,
      .enter = Enter,
      .device_name = DeviceName,
      .allocate = Allocate,
      .release = Release,
      .allocate_host = AllocateHost,
      .release_host = Release,
      .copy_to_device = Copy,
      .copy_to_host = Copy,
      .copy = Copy,
      .zero = Zero,
      .synchronize = Synchronize,
      .error = Error,
      .free_memory = FreeMemory,
      .make_event = MakeEvent,
      .release_event = ReleaseEvent,
      .record_event = RecordEvent,
      .event_done = EventDone,
      .wait_for_event = WaitForEvent,
      .convolution_kernels = &CudaConvolutionKernelsOnHost(),
      .stream = Stream,
      .time = Time,
      .enable_peer_access = EnablePeerAccess,
      .driver_version = DriverVersion,
      .use_device = UseDevice,
      .make_stream = MakeStream,
      .release_stream = ReleaseStream,
      .make_stream_event = MakeStreamEvent,
      .release_stream_event = ReleaseStreamEvent,
      .record_on_stream = RecordOnStream,
      .stream_wait_event = StreamWaitEvent,
      .query_stream_event = QueryStreamEvent,
      .copy_on_stream = CopyOnStream,
      .allocate_uninitialized = AllocateUninitialized,
      .release_uninitialized = ReleaseUninitialized,
  };
  return &api;
}
