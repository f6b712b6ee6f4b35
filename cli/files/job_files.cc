#include "cli/files/job_files.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "cli/files/script.h"
#include "common/status.h"

namespace muster::cli {
namespace {

// Adds the command's script if it is a file in the current folder, unless it was uploaded before.
absl::Status AddScript(const std::string& here, const v1::JobSpec& spec,
                       const std::vector<v1::FileSpec>& uploaded, LocalFiles& files) {
  const std::string script = ScriptOf({spec.command().begin(), spec.command().end()});
  const std::string place = std::filesystem::path(script).lexically_normal().string();
  for (const v1::FileSpec& file : uploaded) {
    if (file.path() == place) return absl::OkStatus();
  }
  std::error_code error;
  if (script.empty() || !std::filesystem::is_regular_file(here + "/" + script, error)) {
    return absl::OkStatus();
  }
  if (*std::filesystem::path(script).lexically_normal().begin() == "..") {
    return absl::InvalidArgumentError(
        absl::StrCat("command: ", script,
                     " is outside of the current folder and cannot be uploaded "
                     "from here; change to its folder, or give --workdir"));
  }
  return files.Add(script, here);
}

}  // namespace

absl::StatusOr<std::string> CurrentFolder() {
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string();
  if (error) return absl::NotFoundError(absl::StrCat("current folder: ", error.message()));
  return here;
}

absl::Status AddJobFiles(const std::string& spec_path, const std::vector<std::string>& more,
                         Place place, v1::JobSpec& spec, LocalFiles& files) {
  ASSIGN_OR_RETURN(const std::string here, CurrentFolder());
  std::vector<v1::FileSpec> uploaded;
  const bool has_folder = !spec_path.empty() && spec_path != "-";
  const std::string folder =
      has_folder ? (std::filesystem::path(here) / spec_path).parent_path().string() : here;
  for (const v1::FileSpec& file : spec.files()) {
    if (!file.sha256().empty()) {
      uploaded.push_back(file);
    } else {
      RETURN_IF_ERROR(files.Add(file.path(), folder));
    }
  }
  for (const std::string& path : more) RETURN_IF_ERROR(files.Add(path, here));
  const bool placed_elsewhere = spec.has_train() || !spec.workdir().empty();
  if (!placed_elsewhere && place == Place::kCluster) {
    RETURN_IF_ERROR(AddScript(here, spec, uploaded, files));
  }
  spec.mutable_files()->Assign(uploaded.begin(), uploaded.end());
  for (const auto& [path, file] : files.files()) *spec.add_files() = file.spec;
  if (!placed_elsewhere && place == Place::kThisMachine && spec.files().empty()) {
    spec.set_workdir(here);
  }
  return absl::OkStatus();
}

}  // namespace muster::cli
