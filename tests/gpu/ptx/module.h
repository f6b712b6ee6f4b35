// A parsed PTX module and its kernels.
#ifndef MUSTER_TESTS_GPU_PTX_MODULE_H_
#define MUSTER_TESTS_GPU_PTX_MODULE_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tests/gpu/ptx/kernel.h"

namespace muster::ptx {

// Immutable after Parse and safe to use from several threads. Kernels live as long as the module
// and do not move with it.
class Module {
 public:
  // Parses PTX and decodes all kernels in it. INVALID_ARGUMENT for a syntax error, UNIMPLEMENTED
  // for an instruction, directive or form that the interpreter does not support; both name the line
  // and its text.
  static absl::StatusOr<Module> Parse(std::string_view ptx);

  // The kernel of that (mangled) name; null if there is none.
  const Kernel* Find(std::string_view name) const;
  const std::map<std::string, std::unique_ptr<const Kernel>, std::less<>>& kernels() const {
    return kernels_;
  }

 private:
  std::map<std::string, std::unique_ptr<const Kernel>, std::less<>> kernels_;
};

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_MODULE_H_
