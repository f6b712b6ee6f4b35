#include "coordinator/store/data_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::store {

absl::StatusOr<std::unique_ptr<DataDir>> DataDir::Acquire(const std::string& path) {
  RETURN_IF_ERROR(security::MakePrivateDirectory(path, {.contents = {"lock", "identity"}}));
  const std::string lock_path = absl::StrCat(path, "/lock");
  ASSIGN_OR_RETURN(security::OwnedFd lock, security::OpenOwnFile(lock_path, O_RDWR | O_CREAT));
  const int fd = lock.get();
  auto data_dir = absl::WrapUnique(new DataDir(path, std::move(lock)));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat("lock ", lock_path));
    std::array<char, 32> pid = {};
    const ssize_t size = pread(fd, pid.data(), pid.size(), 0);
    return absl::FailedPreconditionError(absl::StrCat(
        "data directory ", path, " is in use by another coordinator (pid ",
        absl::StripAsciiWhitespace(absl::string_view(pid.data(), size < 0 ? 0 : size)), ")"));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return ErrnoStatus(errno, absl::StrCat("write ", lock_path));
  }
  return data_dir;
}

}  // namespace muster::store
