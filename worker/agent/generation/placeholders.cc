#include "worker/agent/generation/placeholders.h"

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace muster::agent {

std::string ReplacePlaceholders(absl::string_view argument, const Placeholders& values) {
  if (absl::c_any_of(argument, absl::ascii_isspace)) return std::string(argument);
  std::vector<std::pair<absl::string_view, std::string>> replacements = {
      {"{rank}", absl::StrCat(values.rank)},
      {"{local_rank}", absl::StrCat(values.local_rank)},
      {"{node_rank}", absl::StrCat(values.node_rank)},
      {"{node}", values.node}};
  if (values.array_index.has_value()) {
    replacements.emplace_back("{array_index}", absl::StrCat(*values.array_index));
  }
  std::string text;
  while (!argument.empty()) {
    const bool may_begin = argument[0] == '{' && !absl::EndsWith(text, "$");
    const auto found = absl::c_find_if(replacements, [&](const auto& replacement) {
      return may_begin && absl::StartsWith(argument, replacement.first);
    });
    if (found != replacements.end()) {
      text += found->second;
      argument.remove_prefix(found->first.size());
    } else {
      text += argument[0];
      argument.remove_prefix(1);
    }
  }
  return text;
}

}  // namespace muster::agent
