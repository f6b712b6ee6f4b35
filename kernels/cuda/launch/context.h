// The state of a GPU for kernel launches: its stream, scratch memory and first error.
#ifndef MUSTER_KERNELS_CUDA_LAUNCH_CONTEXT_H_
#define MUSTER_KERNELS_CUDA_LAUNCH_CONTEXT_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace muster::kernels::cuda {

// Used by one thread at a time.
class Context {
 public:
  explicit Context(int ordinal);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Makes this the calling thread's CurrentContext() and its GPU the thread's CUDA device.
  void Enter();

  int ordinal() const { return ordinal_; }
  cudaStream_t stream() const { return stream_; }
  int64_t multiprocessors() const { return properties_.multiProcessorCount; }
  // Number of blocks of 256 threads that the GPU can run at once.
  int64_t resident_blocks() const { return resident_blocks_; }
  const char* name() const { return properties_.name; }

  // Records the status if it is the first that is not cudaSuccess.
  void Check(cudaError_t status) {
    if (first_error_ == cudaSuccess) first_error_ = status;
  }
  cudaError_t first_error() const { return first_error_; }
  // Size of the allocation that failed, if that was the first error; otherwise 0.
  size_t refused_bytes() const { return refused_bytes_; }
  // Called at the end of a capture: returns the error of a call that cannot be captured, and
  // clears it, because it is not an error of the device. cudaSuccess if there was none.
  cudaError_t TakeCaptureError() {
    const bool refused = first_error_ >= cudaErrorStreamCaptureUnsupported &&
                         first_error_ <= cudaErrorStreamCaptureWrongThread;
    return refused ? std::exchange(first_error_, cudaSuccess) : cudaSuccess;
  }

  // Returns scratch memory, valid until the next call; null after an error. If the memory must
  // grow, waits for the stream first, and fails while the stream is being captured.
  void* Scratch(size_t bytes);
  // Returns counters that are zero unless a kernel left them otherwise; null after an error. Grows
  // like the scratch memory.
  uint32_t* Counters(size_t count);

 private:
  // Replaces `memory` by `bytes` new ones, for the kernels queued from now on. Not while the stream
  // is being captured. Returns whether there is memory.
  bool Reallocate(void** memory, size_t bytes);

  int ordinal_;
  cudaStream_t stream_ = nullptr;
  cudaDeviceProp properties_ = {};
  int64_t resident_blocks_ = 1;
  void* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
  size_t refused_bytes_ = 0;
  uint32_t* counters_ = nullptr;
  size_t counters_count_ = 0;
  cudaError_t first_error_ = cudaSuccess;
};

// The context that the calling thread entered last. There must be one.
Context& CurrentContext();

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_LAUNCH_CONTEXT_H_
