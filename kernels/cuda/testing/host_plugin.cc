// A library in the place of libmuster-cuda.so whose one GPU is the processor: memory is the
// process's, the kernels are those of CUDA run on the host, and all has happened when a call
// returns. What Muster does with a GPU is tested with it where there is none.
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/on_host.h"
#include "kernels/cuda/plugin.h"

struct MusterCudaContext {};
struct MusterCudaEvent {};

namespace muster::kernels {
namespace {

constexpr size_t kAlignment = 256;               // as CUDA's
constexpr size_t kFreeMemory = size_t{1} << 30;  // whatever is allocated
constexpr size_t kLargestArray = size_t{1} << 40;

int DeviceCount(const char**) { return 1; }

const char* Open(int, MusterCudaContext** context) {
  *context = new MusterCudaContext;
  return nullptr;
}

void Close(MusterCudaContext* context) { delete context; }

void Enter(MusterCudaContext*) {}

const char* DeviceName(const MusterCudaContext*) { return "host"; }

const char* AllocateHost(MusterCudaContext*, size_t bytes, void** data) {
  if (bytes > kLargestArray) return "out of memory";
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

const char* Synchronize(MusterCudaContext*) { return nullptr; }

const char* FreeMemory(MusterCudaContext*, size_t* bytes) {
  *bytes = kFreeMemory;
  return nullptr;
}

MusterCudaEvent* MakeEvent(MusterCudaContext*) { return new MusterCudaEvent; }
void ReleaseEvent(MusterCudaContext*, MusterCudaEvent* event) { delete event; }
void RecordEvent(MusterCudaContext*, MusterCudaEvent*) {}
int EventDone(MusterCudaEvent*) { return 1; }
const char* WaitForEvent(MusterCudaEvent*) { return nullptr; }

// Nothing stands behind it: whatever is queued has happened.
void* Stream(MusterCudaContext* context) { return context; }

// No two candidates differ.
const char* Time(MusterCudaContext*, void (*work)(void*), void* argument, float* milliseconds) {
  work(argument);
  *milliseconds = 1;
  return nullptr;
}

int DriverVersion() { return 13000; }

}  // namespace
}  // namespace muster::kernels

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
      .free_memory = FreeMemory,
      .make_event = MakeEvent,
      .release_event = ReleaseEvent,
      .record_event = RecordEvent,
      .event_done = EventDone,
      .wait_for_event = WaitForEvent,
      .convolution_kernels = &CudaConvolutionKernelsOnHost(),
      .stream = Stream,
      .time = Time,
      .driver_version = DriverVersion,
  };
  return &api;
}
