// A GPU as the kernels of the calling thread use it: stream, scratch memory, first error.
#ifndef MUSTER_KERNELS_CUDA_LAUNCH_CONTEXT_H_
#define MUSTER_KERNELS_CUDA_LAUNCH_CONTEXT_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace muster::kernels::cuda {

// For one thread at a time.
class Context {
 public:
  explicit Context(int ordinal);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Makes it CurrentContext() of the calling thread.
  void Enter();

  int ordinal() const { return ordinal_; }
  cudaStream_t stream() const { return stream_; }
  // As many blocks of 256 threads as run at once.
  int64_t filling_blocks() const { return filling_blocks_; }
  const char* name() const { return properties_.name; }

  // Remembers the first that is not cudaSuccess.
  void Check(cudaError_t status) {
    if (first_error_ == cudaSuccess) first_error_ = status;
  }
  cudaError_t first_error() const { return first_error_; }

  // Grows where it must, for which it waits, and which a stream being captured cannot; null after
  // an error. Valid until the next call.
  void* Scratch(size_t bytes);

 private:
  int ordinal_;
  cudaStream_t stream_ = nullptr;
  cudaDeviceProp properties_ = {};
  int64_t filling_blocks_ = 1;
  void* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
  cudaError_t first_error_ = cudaSuccess;
};

// The one that the calling thread entered last, which exists.
Context& CurrentContext();

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_LAUNCH_CONTEXT_H_
