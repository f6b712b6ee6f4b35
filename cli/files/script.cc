#include "cli/files/script.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "spec/command_target.h"

namespace muster::cli {
namespace {

// The top-level name of the module that Python did not find; empty if that was not the error.
std::string MissingModule(const v1::FirstFailure& failure) {
  constexpr absl::string_view kError = "No module named '";
  for (const absl::string_view text :
       {absl::string_view(failure.exit().failure().message()),
        absl::string_view(failure.exit().stderr_tail()), absl::string_view(failure.message())}) {
    const size_t at = text.rfind(kError);
    if (at == absl::string_view::npos) continue;
    const absl::string_view name = text.substr(at + kError.size());
    return std::string(name.substr(0, name.find_first_of("'./")));
  }
  return "";
}

}  // namespace

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

std::string MissingModuleHint(const v1::Job& job) {
  const v1::JobSpec& spec = job.spec();
  const std::string module = MissingModule(job.first_failure());
  const std::string script = ScriptOf({spec.command().begin(), spec.command().end()});
  if (module.empty() || script.empty() || !spec.workdir().empty()) return "";
  const std::filesystem::path beside = std::filesystem::path(script).parent_path() / module;
  std::error_code error;
  std::string path = absl::StrCat(beside.lexically_normal().string(), ".py");
  if (!std::filesystem::is_regular_file(path, error)) {
    path = beside.lexically_normal().string();
    if (!std::filesystem::is_directory(path, error)) return "";
  }
  for (const v1::FileSpec& file : spec.files()) {
    if (file.path() == path ||
        absl::string_view(file.path()).substr(0, path.size() + 1) == absl::StrCat(path, "/")) {
      return "";
    }
  }
  return absl::StrCat("hint: ", script, " imports ", module,
                      ", which was not copied to the ranks; add --files ", path,
                      " before `--`, or `files: [", path, "]` to the spec");
}

}  // namespace muster::cli
