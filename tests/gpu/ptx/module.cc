#include "tests/gpu/ptx/module.h"

#include <utility>

#include "common/status.h"
#include "tests/gpu/ptx/decode.h"
#include "tests/gpu/ptx/syntax.h"

namespace muster::ptx {

absl::StatusOr<Module> Module::Parse(std::string_view ptx) {
  const auto source = std::make_shared<const SourceText>(ptx);
  ASSIGN_OR_RETURN(const SyntaxTree tree, ParseSyntax(source->text()));
  Module module;
  for (const Function& function : tree.functions) {
    if (!function.entry) continue;
    ASSIGN_OR_RETURN(Kernel kernel, DecodeKernel(tree, function, source));
    std::string name = kernel.name;
    module.kernels_[std::move(name)] = std::make_unique<const Kernel>(std::move(kernel));
  }
  return module;
}

const Kernel* Module::Find(std::string_view name) const {
  const auto found = kernels_.find(name);
  return found == kernels_.end() ? nullptr : found->second.get();
}

}  // namespace muster::ptx
