#include "tests/gpu/ptx/module.h"

#include <utility>

#include "common/status.h"
#include "tests/gpu/ptx/decode.h"
#include "tests/gpu/ptx/syntax.h"

namespace muster::ptx {

SourceText::SourceText(std::string_view text) : text_(text) {
  begins_.push_back(0);
  for (size_t at = 0; (at = text_.find('\n', at)) != text_.npos;) begins_.push_back(++at);
}

std::string_view SourceText::Line(uint32_t number) const {
  if (number == 0 || number > begins_.size()) return {};
  const size_t begin = begins_[number - 1];
  std::string_view line = std::string_view(text_).substr(begin);
  line = line.substr(0, line.find('\n'));
  const size_t first = line.find_first_not_of(" \t\r");
  if (first == line.npos) return {};
  return line.substr(first, line.find_last_not_of(" \t\r") + 1 - first);
}

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
