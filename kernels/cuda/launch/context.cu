#include <algorithm>

#include "kernels/cuda/launch/context.h"

namespace muster::kernels::cuda {
namespace {

// Sufficient for the partial sums of any reduction over up to 2048 channels.
constexpr size_t kInitialScratchBytes = size_t{32} << 20;

// Sufficient for reductions over some hundred thousand channels.
constexpr size_t kInitialCounters = size_t{1} << 14;

constexpr int kThreads = 256;

thread_local Context* current = nullptr;

}  // namespace

Context::Context(int ordinal) : ordinal_(ordinal) {
  Check(cudaSetDevice(ordinal));
  Check(cudaGetDeviceProperties(&properties_, ordinal));
  if (first_error_ != cudaSuccess) return;
  resident_blocks_ = std::max<int64_t>(1, int64_t{properties_.multiProcessorCount} *
                                              properties_.maxThreadsPerMultiProcessor / kThreads);
  Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  if (first_error_ == cudaSuccess) Scratch(kInitialScratchBytes);
  if (first_error_ == cudaSuccess) Counters(kInitialCounters);
}

Context::~Context() {
  if (cudaSetDevice(ordinal_) == cudaSuccess) {
    if (stream_ != nullptr) {
      cudaStreamSynchronize(stream_);
      cudaStreamDestroy(stream_);
    }
    cudaFree(scratch_);
    cudaFree(counters_);
  }
  if (current == this) {
    current = nullptr;
  } else if (current != nullptr) {
    cudaSetDevice(current->ordinal_);
  }
}

void Context::Enter() {
  if (current == this) return;
  Check(cudaSetDevice(ordinal_));
  current = this;
}

bool Context::Reallocate(void** memory, size_t bytes) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  Check(cudaStreamIsCapturing(stream_, &capture));
  if (capture != cudaStreamCaptureStatusNone) Check(cudaErrorStreamCaptureUnsupported);
  if (first_error_ != cudaSuccess) return false;
  Check(cudaStreamSynchronize(stream_));
  cudaFree(*memory);
  *memory = nullptr;
  if (first_error_ != cudaSuccess) return false;
  Check(cudaMalloc(memory, bytes));
  if (first_error_ != cudaSuccess) refused_bytes_ = bytes;
  return first_error_ == cudaSuccess;
}

void* Context::Scratch(size_t bytes) {
  if (bytes <= scratch_bytes_) return scratch_;
  scratch_bytes_ = 0;
  const size_t grown = std::max(bytes, kInitialScratchBytes);
  if (!Reallocate(&scratch_, grown)) return nullptr;
  scratch_bytes_ = grown;
  return scratch_;
}

uint32_t* Context::Counters(size_t count) {
  if (count <= counters_count_) return counters_;
  counters_count_ = 0;
  const size_t grown = std::max(count, kInitialCounters);
  if (!Reallocate(reinterpret_cast<void**>(&counters_), grown * sizeof(uint32_t))) return nullptr;
  Check(cudaMemsetAsync(counters_, 0, grown * sizeof(uint32_t), stream_));
  counters_count_ = grown;
  return counters_;
}

Context& CurrentContext() { return *current; }

}  // namespace muster::kernels::cuda
