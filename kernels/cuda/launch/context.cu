#include <algorithm>

#include "kernels/cuda/launch/context.h"

namespace muster::kernels::cuda {
namespace {

// Sufficient for the partial sums of any reduction over up to 2048 channels.
constexpr size_t kInitialScratchBytes = size_t{32} << 20;

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
}

Context::~Context() {
  if (cudaSetDevice(ordinal_) == cudaSuccess) {
    if (stream_ != nullptr) {
      cudaStreamSynchronize(stream_);
      cudaStreamDestroy(stream_);
    }
    cudaFree(scratch_);
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

void* Context::Scratch(size_t bytes) {
  if (bytes <= scratch_bytes_) return scratch_;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  Check(cudaStreamIsCapturing(stream_, &capture));
  if (capture != cudaStreamCaptureStatusNone) Check(cudaErrorStreamCaptureUnsupported);
  if (first_error_ != cudaSuccess) return nullptr;
  Check(cudaStreamSynchronize(stream_));
  cudaFree(scratch_);
  scratch_ = nullptr;
  scratch_bytes_ = 0;
  if (first_error_ != cudaSuccess) return nullptr;
  const size_t grown = std::max(bytes, kInitialScratchBytes);
  Check(cudaMalloc(&scratch_, grown));
  if (first_error_ != cudaSuccess) {
    refused_bytes_ = grown;
    return nullptr;
  }
  scratch_bytes_ = grown;
  return scratch_;
}

Context& CurrentContext() { return *current; }

}  // namespace muster::kernels::cuda
