#include "common/security/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::security {
namespace {

constexpr size_t kFileBytes = 1 << 20;
constexpr size_t kUsualBytes = 4096;

bool IsOurs(const struct stat& info) { return info.st_uid == geteuid() || info.st_uid == 0; }

}  // namespace

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}

OwnedFd::OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

absl::StatusOr<OwnedFd> OpenPrivateFile(const std::string& path) {
  // O_NONBLOCK: do not wait for a writer if the path is a pipe.
  OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
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
  std::string temporary = path + ".XXXXXX";
  // mkostemp creates the file with mode 0600.
  OwnedFd file(mkostemp(temporary.data(), O_CLOEXEC));
  const auto fail = [&path] { return ErrnoStatus(errno, absl::StrCat("write ", path)); };
  if (file.get() < 0) return fail();
  absl::Cleanup remove = [&temporary] { unlink(temporary.c_str()); };
  if (lock && flock(file.get(), LOCK_EX | LOCK_NB) != 0) return fail();
  while (!text.empty()) {
    const ssize_t n = write(file.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail();
    text.remove_prefix(n);
  }
  if (fsync(file.get()) != 0 || rename(temporary.c_str(), path.c_str()) != 0) return fail();
  std::move(remove).Cancel();
  return file;
}

absl::Status MakePrivateDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("create directory ", path));
  }
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 022) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " must be a directory that only this user owns and can write to"));
  }
  return absl::OkStatus();
}

}  // namespace muster::security
