#include "cli/files/local_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/files/script.h"
#include "cli/output/words.h"
#include "common/limits.h"
#include "common/sha256.h"
#include "common/status.h"
#include "common/text/nearest.h"
#include "spec/files.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReadBytes = 64 << 10;

bool IsSkipped(const fs::path& name) { return name == ".git" || name == "__pycache__"; }

absl::Status NotReadable(const std::string& path, const std::string& reason) {
  return absl::NotFoundError(absl::StrCat("files: read ", path, ": ", reason));
}

// The place of a path: as the user wrote it, or its last name if it leads elsewhere. Empty for the
// base itself.
std::string PlaceOf(const fs::path& path, const fs::path& source) {
  const fs::path normal = path.lexically_normal();
  if (normal.is_absolute() || *normal.begin() == "..") return source.filename().string();
  return normal == "." ? "" : std::string(absl::StripSuffix(normal.string(), "/"));
}

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

absl::Status LocalFiles::Add(const std::string& path, const std::string& base) {
  if (path.empty()) return absl::InvalidArgumentError("files: a path is empty");
  fs::path source = (fs::path(base) / path).lexically_normal();
  if (!source.has_filename()) source = source.parent_path();  // the path ends with a slash
  struct stat info;
  if (stat(source.c_str(), &info) != 0) return NotReadable(source.string(), std::strerror(errno));
  const std::string place = PlaceOf(path, source);
  if (S_ISREG(info.st_mode)) return AddFile(source.string(), place);
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("files: ", source.string(), " is not a file or folder"));
  }
  const size_t before = found_;
  RETURN_IF_ERROR(AddFolder(source.string(), place));
  if (found_ > before) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("files: folder ", source.string(), " has no files"));
}

absl::Status LocalFiles::AddFolder(const std::string& source, const std::string& place) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator entry(source, error), end; !error && entry != end;
       entry.increment(error)) {
    entries.push_back(*entry);
  }
  if (error) return NotReadable(source, error.message());
  std::sort(entries.begin(), entries.end());
  for (const fs::directory_entry& entry : entries) {
    const fs::path name = entry.path().filename();
    if (IsSkipped(name)) continue;
    const std::string below =
        place.empty() ? name.string() : absl::StrCat(place, "/", name.string());
    const bool is_folder = entry.is_directory(error);
    if (is_folder && !entry.is_symlink(error)) {
      RETURN_IF_ERROR(AddFolder(entry.path().string(), below));
    } else if (entry.is_regular_file(error)) {
      RETURN_IF_ERROR(AddFile(entry.path().string(), below));
    } else {
      skipped_.push_back(absl::StrCat(
          below, is_folder ? ": a link to a folder; give the folder itself" : ": not a file"));
    }
  }
  return absl::OkStatus();
}

absl::Status LocalFiles::AddFile(const std::string& source, const std::string& place) {
  if (!spec::IsFilePath(place)) {
    return absl::InvalidArgumentError(
        absl::StrCat("files: ", Quoted(place), " is not a valid name for a file of a job"));
  }
  ++found_;
  const auto known = files_.find(place);
  if (known != files_.end()) {
    if (known->second.source == source) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("files: ", known->second.source, " and ", source,
                                                   " would both be placed as ", place,
                                                   "; rename one of them"));
  }
  if (files_.size() >= limits::kFiles) {
    return absl::InvalidArgumentError(
        absl::StrCat("files: more than ", limits::kFiles, " files with ", source,
                     "; give fewer, or keep them on a file system that all nodes share"));
  }
  std::ifstream file(source, std::ios::binary);
  struct stat info;
  if (!file || stat(source.c_str(), &info) != 0) return NotReadable(source, std::strerror(errno));
  Sha256 sha256;
  uint64_t size_bytes = 0;
  std::string buffer(kReadBytes, '\0');
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), file.gcount() > 0) {
    sha256.Update(buffer.data(), static_cast<size_t>(file.gcount()));
    size_bytes += static_cast<uint64_t>(file.gcount());
    if (bytes_ + size_bytes > limits::kFilesBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("files: more than ", Bytes(limits::kFilesBytes), " with ", source,
                       "; give fewer, or keep them on a file system that all nodes share"));
    }
  }
  if (file.bad()) return NotReadable(source, std::strerror(errno));
  bytes_ += size_bytes;
  LocalFile& added = files_[place];
  added.source = source;
  added.spec.set_path(place);
  added.spec.set_sha256(sha256.HexDigest());
  added.spec.set_size_bytes(size_bytes);
  added.spec.set_executable((info.st_mode & S_IXUSR) != 0);
  return absl::OkStatus();
}

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
