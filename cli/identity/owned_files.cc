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

// Creates the folder if it is missing.
absl::Status MakeFolder(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0) return absl::OkStatus();
  const std::string parent = ParentOf(path);
  RETURN_IF_ERROR(MakeFolder(parent));
  if (stat(parent.c_str(), &info) != 0 || mkdir(path.c_str(), 0700) != 0) {
    return ErrnoStatus(errno, absl::StrCat("create ", path));
  }
  if (geteuid() != 0 || lchown(path.c_str(), info.st_uid, info.st_gid) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat("change the owner of ", path));
}

}  // namespace

absl::Status MakeOwnedFolder(const std::string& path) {
  RETURN_IF_ERROR(MakeFolder(path));
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
  return security::MakePrivateDirectory(path, {.owner = geteuid() == 0 ? info.st_uid : geteuid(),
                                               .contents = {"ca.key", "node.key", "config"}});
}

absl::Status WriteOwnedFile(const std::string& path, absl::string_view text, FileMode mode) {
  const std::string folder = ParentOf(path);
  RETURN_IF_ERROR(MakeFolder(folder));
  struct stat model;
  if (lstat(path.c_str(), &model) != 0 && stat(folder.c_str(), &model) != 0) {
    return ErrnoStatus(errno, absl::StrCat("write ", path));
  }
  ASSIGN_OR_RETURN(const security::OwnedFd file,
                   security::WritePrivateFile(path, text, /*lock=*/false));
  // By descriptor: the folder's owner could replace the file by a link.
  if (fchmod(file.get(), static_cast<mode_t>(mode)) != 0 ||
      (geteuid() == 0 && fchown(file.get(), model.st_uid, model.st_gid) != 0)) {
    return ErrnoStatus(errno, absl::StrCat("change the owner and mode of ", path));
  }
  return absl::OkStatus();
}

}  // namespace muster::cli
