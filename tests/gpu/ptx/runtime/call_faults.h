// Errors that tests inject into calls of the runtime.
#ifndef MUSTER_TESTS_GPU_PTX_RUNTIME_CALL_FAULTS_H_
#define MUSTER_TESTS_GPU_PTX_RUNTIME_CALL_FAULTS_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace muster::ptx {

// Guarded by the runtime's mutex.
class CallFaults {
 public:
  // Makes the call number `call` (from 1, counted from now) of a function return an error. The
  // function "execution" is the execution of a kernel, copy or other queued work.
  void Add(std::string_view function, uint64_t call, cudaError_t error);
  // FUNCTION:CALL:ERROR, separated by commas; ERROR is the number of a cudaError_t. For example
  // "cudaMalloc:3:2". INVALID_ARGUMENT.
  absl::Status AddAll(std::string_view text);
  void Clear() { faults_.clear(); }

  // Counts a call; returns its error, or cudaSuccess.
  cudaError_t Take(std::string_view function);

 private:
  struct Fault {
    uint64_t calls_before;
    cudaError_t error;
  };
  std::multimap<std::string, Fault, std::less<>> faults_;
};

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_RUNTIME_CALL_FAULTS_H_
