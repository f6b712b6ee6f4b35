// A substitute for the CUDA runtime (libcudart) that runs kernels on the CPU.
//
// The object files that nvcc makes of CUDA sources are linked with it unchanged; it interprets the
// PTX in their fat binaries (build them with nvcc --no-compress) and checks each access. The
// functions that they call are defined in the api_*.cc files, with the declarations of NVIDIA's
// headers; a function that is missing fails to link.
//
// What it finds: kernels that access memory that they must not, races, wrong parameters
// (../execution.h); copies out of bounds, of freed and of uninitialised memory; work that does not
// wait for other work, since queued work runs late and in adversarial orders (scheduler.h); calls
// that a capture forbids, streams that a capture does not join; errors that callers ignore.
//
// What it does not prove: that NVIDIA's runtime, driver and libraries behave as this one, which
// implements their documentation; timing, bandwidth, occupancy; the machine code that ptxas makes
// of the PTX; that kernels of different streams that run at the same time do not race, because work
// runs one piece after the other (only orders are varied); that a host thread does not change
// pinned memory before a queued copy reads it, unless the results show it.
#ifndef MUSTER_TESTS_GPU_PTX_RUNTIME_RUNTIME_H_
#define MUSTER_TESTS_GPU_PTX_RUNTIME_RUNTIME_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tests/gpu/ptx/execution.h"
#include "tests/gpu/ptx/runtime/call_faults.h"
#include "tests/gpu/ptx/runtime/capture.h"
#include "tests/gpu/ptx/runtime/global_memory.h"
#include "tests/gpu/ptx/runtime/graph.h"
#include "tests/gpu/ptx/runtime/kernel_registry.h"
#include "tests/gpu/ptx/runtime/scheduler.h"

namespace muster::ptx {

// A cudaEvent_t.
struct Event {
  int device = 0;
  unsigned flags = 0;
  CompletionPtr recorded;            // null: never, or last in a capture
  std::shared_ptr<Capture> capture;  // newest capture that recorded it
  std::vector<size_t> frontier;
};

struct GpuState {
  cudaError_t fault = cudaSuccess;  // sticky
  Stream* default_stream = nullptr;
  std::set<int> peers;  // devices whose memory it may access
};

// The state of the runtime, guarded by `mutex`. Never destroyed, because kernels are registered
// and calls are made by constructors and destructors of other objects.
class Runtime {
 public:
  static Runtime& Get();

  // Null if the handle is not one of a live object. A null stream is the current device's default
  // stream.
  Stream* FindStream(cudaStream_t stream);
  Event* FindEvent(cudaEvent_t event);

  // The state of the calling thread's device.
  GpuState& gpu() { return gpus[static_cast<size_t>(CurrentDevice())]; }
  DeviceMemory& device_memory() { return memory.of(CurrentDevice()); }
  static int& CurrentDevice();

  // Queues work in a stream, or adds it to the stream's capture.
  cudaError_t Submit(Stream& stream, std::shared_ptr<Work> work);
  // Runs work until `target` is done; lets other threads call the runtime while the work waits for
  // other processes. Returns the fault of the calling thread's device.
  cudaError_t WaitFor(const CompletionPtr& target);
  cudaError_t WaitForDevice();
  // cudaErrorStreamCaptureUnsupported, which invalidates the captures, if a capture forbids calls
  // that may synchronise to the calling thread.
  cudaError_t CheckUnsafeCall();
  // Ends a capture: its streams run work again. Returns what was recorded.
  std::shared_ptr<const Graph> EndCapture(const std::shared_ptr<Capture>& capture);
  // Prints and keeps a report.
  void Report(const std::string& text);
  // Records a fault of the device's work.
  void OnFault(int device, const absl::Status& fault);
  void Reset();

  std::mutex mutex;
  KernelRegistry kernels;
  GlobalMemory memory;
  size_t memory_bytes;  // memory of each device
  std::vector<GpuState> gpus;
  Scheduler scheduler;
  std::vector<std::shared_ptr<Capture>> captures;  // captures in progress
  std::vector<std::unique_ptr<Event>> events;
  std::vector<std::unique_ptr<Graph>> graphs;
  std::vector<std::unique_ptr<ExecutableGraph>> executables;
  CallFaults faults;
  std::deque<std::string> reports;  // stay where they are
  Counters counters;

 private:
  Runtime();
};

// Which calls return the sticky error of a device.
enum class Needs { kNothing, kWorkingDevice };

// Runs the body of an API function with the runtime's mutex held, unless an error is injected into
// it or the device has failed. Errors become the thread's last error, except cudaErrorNotReady,
// which CUDA does not count as one.
cudaError_t Call(const char* function, Needs needs, absl::FunctionRef<cudaError_t(Runtime&)> body);

// The calling thread's last error.
cudaError_t& LastError();

// The properties of every device.
void FillProperties(const Runtime& runtime, cudaDeviceProp& properties);

// Whether CUDA reports the error by all later calls.
bool IsSticky(cudaError_t error);

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_RUNTIME_RUNTIME_H_
