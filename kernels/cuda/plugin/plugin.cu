#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "kernels/cuda/launch/context.h"
#include "kernels/cuda/plugin/plugin.h"
#include "kernels/cuda/table/kernels.h"

struct MusterCudaContext {
  explicit MusterCudaContext(int ordinal) : context(ordinal) {}
  muster::kernels::cuda::Context context;
};

namespace muster::kernels::cuda {
namespace {

const char* TextOf(cudaError_t status) {
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

// Why the first call of the CUDA runtime failed. The runtime returns "insufficient driver" also if
// there is no driver.
const char* WhyNoDevice(cudaError_t status) {
  static thread_local char text[256];
  if (status == cudaSuccess) return "no CUDA device";
  if (status != cudaErrorInsufficientDriver) return cudaGetErrorString(status);
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) {
    std::snprintf(text, sizeof(text), "no driver: %s", dlerror());
    return text;
  }
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  std::snprintf(text, sizeof(text),
                "driver too old: it supports CUDA %d.%d, CUDA %d.%d is required", driver / 1000,
                driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  return text;
}

int DeviceCount(const char** error) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  *error = WhyNoDevice(status);
  return 0;
}

const char* Open(int ordinal, MusterCudaContext** context) {
  auto* const made = new (std::nothrow) MusterCudaContext(ordinal);
  if (made == nullptr) return "out of memory";
  if (made->context.first_error() != cudaSuccess) {
    const char* const error = TextOf(made->context.first_error());
    delete made;
    return error;
  }
  made->context.Enter();
  *context = made;
  return nullptr;
}

void Close(MusterCudaContext* context) { delete context; }

void Enter(MusterCudaContext* context) { context->context.Enter(); }

const char* DeviceName(const MusterCudaContext* context) { return context->context.name(); }

// Returns the error of a call, and clears it from the runtime, so that it is not taken for an error
// of a later kernel launch.
const char* TakeError(cudaError_t status) {
  if (status != cudaSuccess) cudaGetLastError();
  return TextOf(status);
}

void Zero(MusterCudaContext* context, void* to, size_t bytes) {
  context->context.Check(cudaMemsetAsync(to, 0, bytes, context->context.stream()));
}

const char* Allocate(MusterCudaContext* context, size_t bytes, void** data) {
  const size_t at_least = bytes > 0 ? bytes : 1;
  if (const char* error = TakeError(cudaMalloc(data, at_least)); error != nullptr) return error;
  Zero(context, *data, at_least);
  return nullptr;
}

void Release(MusterCudaContext* context, void* data) { context->context.Check(cudaFree(data)); }

const char* AllocateHost(MusterCudaContext*, size_t bytes, void** data) {
  return TakeError(cudaHostAlloc(data, bytes > 0 ? bytes : 1, cudaHostAllocPortable));
}

void ReleaseHost(MusterCudaContext* context, void* data) {
  context->context.Check(cudaFreeHost(data));
}

void QueueCopy(MusterCudaContext* context, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  context->context.Check(
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, context->context.stream()));
}

struct InlineBytes {
  uint8_t bytes[MUSTER_CUDA_INLINE_BYTES];
};

__global__ void StoreKernel(const __grid_constant__ InlineBytes value, int count, uint8_t* to) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    to[i] = value.bytes[i];
  }
}

void CopyToDevice(MusterCudaContext* context, void* to, const void* host, size_t bytes) {
  if (bytes == 0 || bytes > MUSTER_CUDA_INLINE_BYTES) return QueueCopy(context, to, host, bytes);
  InlineBytes value;
  std::memcpy(value.bytes, host, bytes);
  StoreKernel<<<1, MUSTER_CUDA_INLINE_BYTES, 0, context->context.stream()>>>(
      value, static_cast<int>(bytes), static_cast<uint8_t*>(to));
  context->context.Check(cudaGetLastError());
}

void CopyToHost(MusterCudaContext* context, void* host, const void* from, size_t bytes) {
  QueueCopy(context, host, from, bytes);
  context->context.Check(cudaStreamSynchronize(context->context.stream()));
}

const char* FreeMemory(MusterCudaContext*, size_t* bytes) {
  size_t total = 0;
  return TakeError(cudaMemGetInfo(bytes, &total));
}

MusterCudaEvent* MakeEvent(MusterCudaContext* context) {
  cudaEvent_t event = nullptr;
  // Threads that wait for the event block instead of spinning.
  context->context.Check(
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
  return reinterpret_cast<MusterCudaEvent*>(event);
}

cudaEvent_t EventOf(MusterCudaEvent* event) { return reinterpret_cast<cudaEvent_t>(event); }

void ReleaseEvent(MusterCudaContext* context, MusterCudaEvent* event) {
  context->context.Check(cudaEventDestroy(EventOf(event)));
}

void RecordEvent(MusterCudaContext* context, MusterCudaEvent* event) {
  context->context.Check(cudaEventRecord(EventOf(event), context->context.stream()));
}

// Returns the status of a query, and clears it from the runtime, which may keep "not ready" as the
// error that the next kernel launch would return.
cudaError_t Queried(cudaError_t status) {
  if (status == cudaErrorNotReady) cudaGetLastError();
  return status;
}

int EventDone(MusterCudaEvent* event) {
  return Queried(cudaEventQuery(EventOf(event))) == cudaErrorNotReady ? 0 : 1;
}

const char* WaitForEvent(MusterCudaEvent* event) {
  return TextOf(cudaEventSynchronize(EventOf(event)));
}

const char* Synchronize(MusterCudaContext* context) {
  context->context.Check(cudaStreamSynchronize(context->context.stream()));
  return TextOf(context->context.first_error());
}

const char* Error(MusterCudaContext* context, size_t* refused_bytes) {
  // Also returns the error of a kernel that has failed.
  const cudaError_t status = Queried(cudaStreamQuery(context->context.stream()));
  if (status != cudaErrorNotReady) context->context.Check(status);
  *refused_bytes = context->context.refused_bytes();
  return TextOf(context->context.first_error());
}

void* Stream(MusterCudaContext* context) { return context->context.stream(); }

const char* Time(MusterCudaContext* context, void (*work)(void*), void* argument,
                 float* milliseconds) {
  const cudaStream_t stream = context->context.stream();
  cudaEvent_t begin = nullptr, end = nullptr;
  cudaError_t status = cudaEventCreate(&begin);
  if (status == cudaSuccess) status = cudaEventCreate(&end);
  if (status == cudaSuccess) status = cudaEventRecord(begin, stream);
  if (status == cudaSuccess) {
    work(argument);
    status = cudaEventRecord(end, stream);
  }
  if (status == cudaSuccess) status = cudaEventSynchronize(end);
  if (status == cudaSuccess) status = cudaEventElapsedTime(milliseconds, begin, end);
  if (begin != nullptr) cudaEventDestroy(begin);
  if (end != nullptr) cudaEventDestroy(end);
  context->context.Check(status);
  return TextOf(status);
}

int EnablePeerAccess(int ordinal, int peer) {
  int previous = 0, able = 0;
  cudaError_t status = cudaGetDevice(&previous);
  if (status == cudaSuccess) status = cudaDeviceCanAccessPeer(&able, ordinal, peer);
  if (status == cudaSuccess && able != 0) {
    status = cudaSetDevice(ordinal);
    if (status == cudaSuccess) status = cudaDeviceEnablePeerAccess(peer, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();
      status = cudaSuccess;
    }
    cudaSetDevice(previous);
  }
  return TakeError(status) == nullptr && able != 0 ? 1 : 0;
}

int DriverVersion() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

const char* StartCapture(MusterCudaContext* context) {
  // Other threads may call CUDA freely during the capture.
  return TakeError(
      cudaStreamBeginCapture(context->context.stream(), cudaStreamCaptureModeThreadLocal));
}

cudaGraphExec_t GraphOf(MusterCudaGraph* graph) { return reinterpret_cast<cudaGraphExec_t>(graph); }

const char* FinishCapture(MusterCudaContext* context, MusterCudaGraph** graph) {
  cudaGraph_t captured = nullptr;
  cudaError_t status = cudaStreamEndCapture(context->context.stream(), &captured);
  const cudaError_t refused = context->context.TakeCaptureError();
  if (status == cudaSuccess && refused != cudaSuccess) {
    cudaGraphDestroy(captured);
    status = refused;
  }
  if (status != cudaSuccess) return TakeError(status);
  cudaGraphExec_t made = nullptr;
  // Kernels of streams with a higher priority, such as those of collectives, keep it.
  status = cudaGraphInstantiate(&made, captured, cudaGraphInstantiateFlagUseNodePriority);
  cudaGraphDestroy(captured);
  // Upload now rather than with the first launch.
  if (status == cudaSuccess) status = cudaGraphUpload(made, context->context.stream());
  if (status != cudaSuccess && made != nullptr) cudaGraphExecDestroy(made);
  *graph = reinterpret_cast<MusterCudaGraph*>(made);
  return TakeError(status);
}

void LaunchGraph(MusterCudaContext* context, MusterCudaGraph* graph) {
  context->context.Check(cudaGraphLaunch(GraphOf(graph), context->context.stream()));
}

void DestroyGraph(MusterCudaContext* context, MusterCudaGraph* graph) {
  context->context.Check(cudaGraphExecDestroy(GraphOf(graph)));
}

const char* UseDevice(const MusterCudaContext* context) {
  return TakeError(cudaSetDevice(context->context.ordinal()));
}

cudaStream_t StreamOf(void* stream) { return static_cast<cudaStream_t>(stream); }

const char* MakeStream(void** stream) {
  int lowest = 0, highest = 0;
  cudaError_t status = cudaDeviceGetStreamPriorityRange(&lowest, &highest);
  cudaStream_t made = nullptr;
  if (status == cudaSuccess) {
    status = cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, highest);
  }
  *stream = made;
  return TakeError(status);
}

const char* ReleaseStream(void* stream) { return TakeError(cudaStreamDestroy(StreamOf(stream))); }

const char* MakeStreamEvent(MusterCudaEvent** event) {
  cudaEvent_t made = nullptr;
  const cudaError_t status = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
  *event = reinterpret_cast<MusterCudaEvent*>(made);
  return TakeError(status);
}

void ReleaseStreamEvent(MusterCudaEvent* event) { TakeError(cudaEventDestroy(EventOf(event))); }

const char* RecordOnStream(void* stream, MusterCudaEvent* event) {
  return TakeError(cudaEventRecord(EventOf(event), StreamOf(stream)));
}

const char* StreamWaitEvent(void* stream, MusterCudaEvent* event) {
  return TakeError(cudaStreamWaitEvent(StreamOf(stream), EventOf(event), 0));
}

const char* QueryStreamEvent(MusterCudaEvent* event, int* reached) {
  const cudaError_t status = Queried(cudaEventQuery(EventOf(event)));
  *reached = status == cudaSuccess;
  return status == cudaErrorNotReady ? nullptr : TakeError(status);
}

const char* CopyOnStream(void* stream, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return nullptr;
  return TakeError(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, StreamOf(stream)));
}

const char* AllocateUninitialized(size_t bytes, void** data) {
  return TakeError(cudaMalloc(data, bytes > 0 ? bytes : 1));
}

void ReleaseUninitialized(void* data) { TakeError(cudaFree(data)); }

const MusterCudaApi kApi = {
    .abi = MUSTER_CUDA_ABI,
    .kernel_table_bytes = sizeof(KernelTable),
    .kernels = &kKernels,
    .device_count = DeviceCount,
    .open = Open,
    .close = Close,
    .enter = Enter,
    .device_name = DeviceName,
    .allocate = Allocate,
    .release = Release,
    .allocate_host = AllocateHost,
    .release_host = ReleaseHost,
    .copy_to_device = CopyToDevice,
    .copy_to_host = CopyToHost,
    .copy = QueueCopy,
    .zero = Zero,
    .synchronize = Synchronize,
    .error = Error,
    .free_memory = FreeMemory,
    .make_event = MakeEvent,
    .release_event = ReleaseEvent,
    .record_event = RecordEvent,
    .event_done = EventDone,
    .wait_for_event = WaitForEvent,
    .convolution_kernels = &kConvolutionKernels,
    .stream = Stream,
    .time = Time,
    .enable_peer_access = EnablePeerAccess,
    .driver_version = DriverVersion,
    .start_capture = StartCapture,
    .finish_capture = FinishCapture,
    .launch_graph = LaunchGraph,
    .destroy_graph = DestroyGraph,
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

}  // namespace
}  // namespace muster::kernels::cuda

extern "C" const MusterCudaApi* MusterCudaGetApi(void) { return &muster::kernels::cuda::kApi; }
