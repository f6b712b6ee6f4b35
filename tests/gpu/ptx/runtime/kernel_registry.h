// The kernels of the program, found by the address of their host functions.
#ifndef MUSTER_TESTS_GPU_PTX_RUNTIME_KERNEL_REGISTRY_H_
#define MUSTER_TESTS_GPU_PTX_RUNTIME_KERNEL_REGISTRY_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/gpu/ptx/kernel.h"
#include "tests/gpu/ptx/module.h"

namespace muster::ptx {

// Guarded by the runtime's mutex.
class KernelRegistry {
 public:
  // `wrapper`: see fatbin.h. Returns a handle.
  void** AddFatbin(const void* wrapper);
  void AddFunction(void** fatbin, const void* host_function, const char* name);
  bool Contains(const void* host_function) const { return functions_.count(host_function) > 0; }
  // Number of kernels that have been launched.
  size_t launched() const;
  // Parses the PTX of the function's source file when the first of its kernels is needed. NOT_FOUND
  // if there is no such kernel; errors of PtxOfFatbin and Module::Parse.
  absl::StatusOr<std::shared_ptr<const Kernel>> Find(const void* host_function);

 private:
  struct Fatbin {
    const void* wrapper;
    bool parsed = false;
    std::vector<std::shared_ptr<const Module>> modules = {};
  };
  struct Function {
    Fatbin* fatbin;
    std::string name;
    std::shared_ptr<const Kernel> kernel;
  };

  std::vector<std::unique_ptr<Fatbin>> fatbins_;
  std::map<const void*, Function> functions_;
};

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_RUNTIME_KERNEL_REGISTRY_H_
