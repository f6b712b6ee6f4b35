#include "cli/identity/owned_files.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/security/private_file.h"
#include "common/status.h"

namespace muster::cli {
namespace {

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent;
}

// Gives the file to the owner of `model`.
absl::Status GiveTo(const struct stat& model, const std::string& path) {
  if (geteuid() != 0 || chown(path.c_str(), model.st_uid, model.st_gid) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat("change the owner of ", path));
}

}  // namespace

absl::Status MakeOwnedFolder(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0) return absl::OkStatus();
  const std::string parent = ParentOf(path);
  RETURN_IF_ERROR(MakeOwnedFolder(parent));
  if (stat(parent.c_str(), &info) != 0 || mkdir(path.c_str(), 0700) != 0) {
    return ErrnoStatus(errno, absl::StrCat("create ", path));
  }
  return GiveTo(info, path);
}

absl::Status WriteOwnedFile(const std::string& path, absl::string_view text, FileMode mode) {
  const std::string folder = ParentOf(path);
  RETURN_IF_ERROR(MakeOwnedFolder(folder));
  struct stat model;
  if (stat(path.c_str(), &model) != 0 && stat(folder.c_str(), &model) != 0) {
    return ErrnoStatus(errno, absl::StrCat("write ", path));
  }
  RETURN_IF_ERROR(security::WritePrivateFile(path, text, /*lock=*/false).status());
  if (chmod(path.c_str(), static_cast<mode_t>(mode)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("change the mode of ", path));
  }
  return GiveTo(model, path);
}

}  // namespace muster::cli
