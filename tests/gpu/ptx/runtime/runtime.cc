#include "tests/gpu/ptx/runtime/runtime.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace muster::ptx {
namespace {

constexpr char kInjected[] = "injected error ";

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return otherwise;
  uint64_t value = 0;
  if (absl::SimpleAtoi(text, &value)) return value;
  std::fprintf(stderr, "ptx: %s=%s is not a number\n", name, text);
  std::abort();
}

cudaError_t ErrorOf(const absl::Status& fault) {
  switch (fault.code()) {
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
      return cudaErrorIllegalAddress;
    case absl::StatusCode::kInvalidArgument:
      return cudaErrorMisalignedAddress;
    case absl::StatusCode::kDeadlineExceeded:
      return cudaErrorLaunchTimeout;
    default:
      return cudaErrorLaunchFailure;
  }
}

// Virtual time, so that measurements do not depend on the machine: a million instructions per
// millisecond, and a microsecond for each piece of work.
constexpr double kMillisecondsPerInstruction = 1e-6;
// Long, so that a caller that repeats work until some time has passed does not repeat it often.
constexpr double kMillisecondsPerWork = 25;

void PrintStatistics() {
  Runtime& runtime = Runtime::Get();
  const std::unique_lock<std::mutex> lock(runtime.mutex);
  std::fprintf(stderr, "PTX interpreter: %zu kernels, %llu launches, %llu instructions\n",
               runtime.kernels.launched(),
               static_cast<unsigned long long>(runtime.counters.launches),
               static_cast<unsigned long long>(runtime.counters.instructions));
}

template <typename T>
T* FindIn(const std::vector<std::unique_ptr<T>>& all, const void* handle) {
  for (const auto& one : all) {
    if (one.get() == handle) return one.get();
  }
  return nullptr;
}

}  // namespace

Runtime& Runtime::Get() {
  static Runtime& runtime = *new Runtime;
  return runtime;
}

Runtime::Runtime()
    : memory(static_cast<int>(FromEnvironment("PTX_DEVICES", 1))),
      memory_bytes(FromEnvironment("PTX_MEMORY", uint64_t{2} << 30)),
      gpus(FromEnvironment("PTX_DEVICES", 1)),
      scheduler(
          {.before_work =
               [this](int) {
                 const cudaError_t error = faults.Take("execution");
                 if (error == cudaSuccess) return absl::OkStatus();
                 return absl::UnknownError(absl::StrCat(kInjected, int{error}));
               },
           .clock =
               [this, works = uint64_t{0}]() mutable {
                 return kMillisecondsPerInstruction * static_cast<double>(counters.instructions) +
                        kMillisecondsPerWork * static_cast<double>(++works);
               },
           .on_fault = [this](int device, const absl::Status& fault) { OnFault(device, fault); }}) {
  scheduler.SetOrder(FromEnvironment("PTX_ORDER", 0));
  for (size_t device = 0; device < gpus.size(); ++device) {
    gpus[device].default_stream = scheduler.Make(static_cast<int>(device));
    gpus[device].default_stream->is_default = true;
  }
  if (std::getenv("PTX_STATISTICS") != nullptr) std::atexit(PrintStatistics);
  const char* const fail = std::getenv("PTX_FAIL");
  if (const absl::Status added = faults.AddAll(fail == nullptr ? "" : fail); !added.ok()) {
    std::fprintf(stderr, "ptx: PTX_FAIL: %s\n", std::string(added.message()).c_str());
    std::abort();
  }
}

int& Runtime::CurrentDevice() {
  static thread_local int device = 0;
  return device;
}

Stream* Runtime::FindStream(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy) return gpu().default_stream;
  return scheduler.Find(stream);
}

Event* Runtime::FindEvent(cudaEvent_t event) { return FindIn(events, event); }

cudaError_t Runtime::Submit(Stream& stream, std::shared_ptr<Work> work) {
  if (stream.capture == nullptr) {
    scheduler.Push(stream, std::move(work));
    return cudaSuccess;
  }
  if (stream.capture->state() == CaptureState::kInvalidated)
    return cudaErrorStreamCaptureInvalidated;
  stream.capture->Add(std::move(work), stream);
  return cudaSuccess;
}

cudaError_t Runtime::WaitFor(const CompletionPtr& target) {
  while (target != nullptr && !target->done) {
    if (scheduler.Advance(*target)) continue;
    mutex.unlock();
    std::this_thread::yield();
    mutex.lock();
  }
  return gpu().fault;
}

cudaError_t Runtime::WaitForDevice() {
  for (const CompletionPtr& last : scheduler.LastOf(CurrentDevice())) WaitFor(last);
  return gpu().fault;
}

cudaError_t Runtime::CheckUnsafeCall() {
  cudaError_t result = cudaSuccess;
  for (const auto& capture : captures) {
    if (!capture->ForbidsUnsafeCalls()) continue;
    capture->Invalidate();
    result = cudaErrorStreamCaptureUnsupported;
  }
  return result;
}

std::shared_ptr<const Graph> Runtime::EndCapture(const std::shared_ptr<Capture>& capture) {
  const std::shared_ptr<Capture> ended = capture;  // outlives its places in the lists
  for (Stream* const stream : scheduler.StreamsOf(*ended)) {
    stream->capture = nullptr;
    stream->frontier.clear();
  }
  captures.erase(std::find(captures.begin(), captures.end(), ended));
  return ended->End();
}

void Runtime::Report(const std::string& text) {
  std::fprintf(stderr, "ptx: %s\n", text.c_str());
  reports.push_back(text);
}

void Runtime::OnFault(int device, const absl::Status& fault) {
  const absl::string_view message = fault.message();
  Report(std::string(message));
  int injected = 0;
  const bool is_injected =
      fault.code() == absl::StatusCode::kUnknown &&
      absl::SimpleAtoi(message.substr(std::min(message.size(), sizeof(kInjected) - 1)), &injected);
  gpus[static_cast<size_t>(device)].fault =
      is_injected ? static_cast<cudaError_t>(injected) : ErrorOf(fault);
}

void Runtime::Reset() {
  for (size_t device = 0; device < gpus.size(); ++device) {
    gpus[device].fault = cudaSuccess;
    scheduler.Discard(static_cast<int>(device));
  }
  while (!captures.empty()) EndCapture(captures.back());
  faults.Clear();
  reports.clear();
  LastError() = cudaSuccess;
}

cudaError_t& LastError() {
  static thread_local cudaError_t error = cudaSuccess;
  return error;
}

bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
      return true;
    default:
      return false;
  }
}

cudaError_t Call(const char* function, Needs needs, absl::FunctionRef<cudaError_t(Runtime&)> body) {
  Runtime& runtime = Runtime::Get();
  const std::unique_lock<std::mutex> lock(runtime.mutex);
  cudaError_t result = runtime.faults.Take(function);
  if (result != cudaSuccess) std::fprintf(stderr, "ptx: %s%d: %s\n", kInjected, result, function);
  if (IsSticky(result)) runtime.gpu().fault = result;
  if (result == cudaSuccess && needs == Needs::kWorkingDevice) result = runtime.gpu().fault;
  if (result == cudaSuccess) result = body(runtime);
  if (result != cudaSuccess && result != cudaErrorNotReady) LastError() = result;
  return result;
}

}  // namespace muster::ptx
