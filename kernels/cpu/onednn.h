// What every use of oneDNN shares: engine and stream, the number of threads, primitives with their
// arguments ready.
//
// Only for .cc files of this folder: dnnl.hpp is heavy and throws. Creation may throw dnnl::error;
// callers turn it into a status with CatchOneDnn.
#ifndef MUSTER_KERNELS_CPU_ONEDNN_H_
#define MUSTER_KERNELS_CPU_ONEDNN_H_

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace muster::kernels::cpu {

const dnnl::engine& CpuEngine();

// oneDNN computes in OpenMP's threads; their number is the calling thread's own setting, given back
// afterwards.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int before_;
};

// Runs create(); an exception becomes INVALID_ARGUMENT, RESOURCE_EXHAUSTED or INTERNAL, with `what`
// before it.
template <typename Create>
absl::Status CatchOneDnn(absl::string_view what, const Create& create);
absl::Status OneDnnStatus(absl::string_view what, const dnnl::error& error);

// Strides and inner blocks in words; empty for a format that only oneDNN itself can read.
std::string DescribeLayout(const dnnl::memory::desc& desc);

// A primitive and its memories, whose addresses come with each execution. Not thread-safe.
class Primitive {
 public:
  struct Argument {
    int index;                // DNNL_ARG_…
    dnnl::memory::desc desc;  // empty for one that the primitive does without
  };

  Primitive() = default;
  // The scratchpad, where the primitive wants one, comes from outside. Throws dnnl::error.
  Primitive(const dnnl::primitive_desc_base& desc, std::vector<Argument> arguments);

  explicit operator bool() const { return static_cast<bool>(primitive_); }
  size_t scratchpad_bytes() const { return scratchpad_bytes_; }
  const std::string& implementation() const { return implementation_; }

  // addresses: one per argument, in the constructor's order. A failure is a defect, hence fatal:
  // sizes and types were settled at creation.
  void Execute(std::initializer_list<const void*> addresses, void* scratchpad);

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<dnnl::memory> memories_;  // the scratchpad last
  std::vector<const void*> addresses_;  // that the memories have now
  std::vector<dnnl_exec_arg_t> arguments_;
  size_t scratchpad_bytes_ = 0;
  std::string implementation_;
};

template <typename Create>
absl::Status CatchOneDnn(absl::string_view what, const Create& create) {
  try {
    create();
    return absl::OkStatus();
  } catch (const dnnl::error& error) {
    return OneDnnStatus(what, error);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(std::string(what) + ": out of memory");
  }
}

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_ONEDNN_H_
