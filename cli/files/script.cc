#include "cli/files/script.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "spec/command_target.h"

namespace muster::cli {
std::string ScriptOf(const std::vector<std::string>& command) {
  const spec::CommandTarget target = spec::TargetOf(command);
  // A program without a folder is looked up in PATH.
  const bool in_path = target.script == target.program && !absl::StrContains(target.script, '/');
  return in_path || absl::StartsWith(target.script, "/") ? "" : target.script;
}

std::string CommandFor(const std::string& path) {
  if (absl::EndsWith(path, ".py")) return absl::StrCat("python3 ", path);
  return absl::EndsWith(path, ".sh") ? absl::StrCat("bash ", path) : "";
}

}  // namespace muster::cli
