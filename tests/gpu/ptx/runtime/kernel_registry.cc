#include "tests/gpu/ptx/runtime/kernel_registry.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "tests/gpu/ptx/runtime/fatbin.h"

namespace muster::ptx {

void** KernelRegistry::AddFatbin(const void* wrapper) {
  fatbins_.push_back(std::make_unique<Fatbin>(Fatbin{wrapper}));
  return reinterpret_cast<void**>(fatbins_.back().get());
}

void KernelRegistry::AddFunction(void** fatbin, const void* host_function, const char* name) {
  functions_[host_function] = {reinterpret_cast<Fatbin*>(fatbin), name, nullptr};
}

size_t KernelRegistry::launched() const {
  return static_cast<size_t>(
      std::count_if(functions_.begin(), functions_.end(),
                    [](const auto& function) { return function.second.kernel != nullptr; }));
}

absl::StatusOr<std::shared_ptr<const Kernel>> KernelRegistry::Find(const void* host_function) {
  const auto found = functions_.find(host_function);
  if (found == functions_.end()) return absl::NotFoundError("a launch of an unregistered function");
  Function& function = found->second;
  if (function.kernel != nullptr) return function.kernel;
  Fatbin& fatbin = *function.fatbin;
  if (!fatbin.parsed) {
    ASSIGN_OR_RETURN(const std::vector<std::string_view> modules, PtxOfFatbin(fatbin.wrapper));
    for (const std::string_view ptx : modules) {
      ASSIGN_OR_RETURN(Module module, Module::Parse(ptx));
      fatbin.modules.push_back(std::make_shared<const Module>(std::move(module)));
    }
    fatbin.parsed = true;
  }
  for (const auto& module : fatbin.modules) {
    if (const Kernel* const kernel = module->Find(function.name); kernel != nullptr) {
      function.kernel = std::shared_ptr<const Kernel>(module, kernel);
      return function.kernel;
    }
  }
  return absl::NotFoundError(absl::StrCat("no PTX of kernel ", function.name));
}

}  // namespace muster::ptx
