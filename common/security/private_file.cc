#include "common/security/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/files/replace_file.h"
#include "common/status.h"

namespace muster::security {
namespace {

constexpr size_t kFileBytes = 1 << 20;
constexpr size_t kUsualBytes = 4096;

bool IsOurs(const struct stat& info) { return info.st_uid == geteuid() || info.st_uid == 0; }

// Whether `info`, of lstat or of an open file, is of this kind (S_IFREG, S_IFDIR) and owner.
absl::Status CheckKept(const struct stat& info, mode_t kind, uid_t owner, const std::string& path) {
  if (S_ISLNK(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is a symbolic link; use the path that it leads to: realpath ", path));
  }
  if ((info.st_mode & S_IFMT) != kind) {
    const bool directory = kind == S_IFDIR;
    return absl::Status(
        directory ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kInvalidArgument,
        absl::StrCat(path, " is not a ", directory ? "directory" : "regular file"));
  }
  if (info.st_uid == owner) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(path, " is owned by user ", info.st_uid, ", not by user ", owner,
                   ", whose secrets it contains; run chown ", owner, " ", path));
}

// Gives the open file or directory this mode, if it has another one.
absl::Status SetMode(const OwnedFd& file, struct stat& info, mode_t mode, const std::string& path) {
  constexpr mode_t kRights = 0777;
  if ((info.st_mode & kRights) == mode) return absl::OkStatus();
  // A file system without modes changes nothing.
  if (fchmod(file.get(), (info.st_mode & 07000) | mode) == 0 && fstat(file.get(), &info) == 0 &&
      (info.st_mode & kRights) == mode) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrFormat(
      "%s contains secrets but has mode %04o, which cannot be changed; run chmod %o %s", path,
      info.st_mode & kRights, mode, path));
}

// Whether the directory seems to be one that other users need.
bool IsShared(const struct stat& info, const std::string& path,
              const std::vector<std::string>& contents) {
  if ((info.st_mode & S_ISVTX) != 0) return true;
  if ((info.st_mode & 066) == 0 || contents.empty()) return false;
  std::error_code ignored;
  const bool is_known = absl::c_any_of(contents, [&](const std::string& name) {
    return std::filesystem::exists(std::filesystem::path(path) / name, ignored);
  });
  return !is_known && !std::filesystem::is_empty(path, ignored);
}

absl::Status MakeParents(const std::filesystem::path& path) {
  std::error_code ignored;  // mkdir reports the error
  if (path.empty() || std::filesystem::is_directory(path, ignored)) return absl::OkStatus();
  RETURN_IF_ERROR(MakeParents(path.parent_path()));
  if (mkdir(path.c_str(), 0711) == 0 || errno == EEXIST) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("create directory ", path.string()));
}

}  // namespace

absl::StatusOr<OwnedFd> OpenPrivateFile(const std::string& path, int flags) {
  // O_NONBLOCK: do not wait for a writer if the path is a pipe.
  OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags));
  if (file.get() < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
  struct stat info;
  if (fstat(file.get(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  if (!IsOurs(info)) {
    return absl::PermissionDeniedError(absl::StrCat(path, " is owned by user ", info.st_uid,
                                                    ", but this program runs as user ", geteuid()));
  }
  if ((info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        path, " contains secrets but is accessible to other users; run chmod 600 ", path));
  }
  return file;
}

absl::StatusOr<OwnedFd> OpenOwnFile(const std::string& path, int flags) {
  OwnedFd file(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  const int error = errno;
  const bool opened = file.get() >= 0;
  struct stat info;
  if ((opened ? fstat(file.get(), &info) : lstat(path.c_str(), &info)) != 0) {
    return ErrnoStatus(opened ? errno : error, absl::StrCat("open ", path));
  }
  RETURN_IF_ERROR(CheckKept(info, S_IFREG, geteuid(), path));
  if (!opened) return ErrnoStatus(error, absl::StrCat("open ", path));
  RETURN_IF_ERROR(SetMode(file, info, info.st_mode & 0700, path));
  return file;
}

absl::StatusOr<std::string> ReadFrom(const OwnedFd& file, const std::string& path) {
  std::string text(kUsualBytes, '\0');
  size_t size = 0;
  while (size <= kFileBytes) {
    if (size == text.size()) text.resize(kFileBytes + 1);
    const ssize_t n = pread(file.get(), text.data() + size, text.size() - size, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
    if (n == 0) break;
    size += n;
  }
  if (size > kFileBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, " is larger than ", kFileBytes, " bytes"));
  }
  text.resize(size);
  return text;
}

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path) {
  ASSIGN_OR_RETURN(const OwnedFd file, OpenPrivateFile(path));
  return ReadFrom(file, path);
}

absl::StatusOr<OwnedFd> WritePrivateFile(const std::string& path, absl::string_view text,
                                         bool lock) {
  OwnedFd file = ReplaceFile(path, {text.data(), text.size()}, {.lock = lock});
  if (file.get() < 0) return ErrnoStatus(errno, absl::StrCat("write ", path));
  return file;
}

absl::Status MakePrivateDirectory(const std::string& path, const DirectoryOptions& options) {
  std::filesystem::path directory(path);
  // A slash at the end would follow a symbolic link.
  while (!directory.has_filename() && directory.has_relative_path()) {
    directory = directory.parent_path();
  }
  const std::string name = directory.has_filename() ? directory.filename().string() : ".";
  const std::string parent =
      directory.parent_path().empty() ? "." : directory.parent_path().string();
  RETURN_IF_ERROR(MakeParents(directory.parent_path()));
  const OwnedFd above(open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat info;
  if (above.get() < 0 || fstat(above.get(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("create directory ", path));
  }
  if ((info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        parent, " is writable by all users, who could replace ", path, "; run chmod o-w ", parent));
  }
  if (mkdirat(above.get(), name.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("create directory ", path));
  }
  const OwnedFd opened(
      openat(above.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const int error = errno;
  if ((opened.get() >= 0 ? fstat(opened.get(), &info)
                         : fstatat(above.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("open ", path));
  }
  RETURN_IF_ERROR(CheckKept(info, S_IFDIR, options.owner, path));
  if (opened.get() < 0) return ErrnoStatus(error, absl::StrCat("open ", path));
  if (IsShared(info, path, options.contents)) {
    return absl::PermissionDeniedError(absl::StrCat(
        path,
        " is shared with other users and contains other files; use another directory, or run "
        "chmod 0700 ",
        path));
  }
  return SetMode(opened, info, static_cast<mode_t>(options.mode), path);
}

}  // namespace muster::security
