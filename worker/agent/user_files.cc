#include "worker/agent/user_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/security/private_file.h"
#include "common/status.h"
#include "worker/agent/user_rights.h"

namespace muster::agent {

absl::Status MakePassage(const std::string& path) {
  return security::MakePrivateDirectory(path, {.mode = security::DirectoryMode::kPassage});
}

absl::Status MakeUserDirectory(const std::string& path, const JobUser& user) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("mkdir ", path));
  }
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    return absl::FailedPreconditionError(absl::StrCat("open ", path, ": ", std::strerror(errno)));
  }
  const absl::Cleanup close_fd = [fd] { close(fd); };
  if (fchown(fd, user.credentials.uid, user.credentials.gid) != 0) {
    return ErrnoStatus(errno, absl::StrCat("give ", path, " to ", user.name));
  }
  if (fchmod(fd, 0700) != 0) return ErrnoStatus(errno, absl::StrCat("chmod ", path));
  return absl::OkStatus();
}

absl::Status CheckReachable(const std::string& path, const JobUser& user) {
  const UserRights rights(user);
  RETURN_IF_ERROR(rights.status());
  std::filesystem::path prefix;
  for (const std::filesystem::path& part : std::filesystem::path(path)) {
    prefix /= part;
    struct stat status = {};
    if (stat((prefix / ".").c_str(), &status) == 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("user ", user.name, " cannot enter ", prefix.string(), ", which leads to ",
                     path, ": ", std::strerror(errno), "; --job-user needs mode 0711 there"));
  }
  return absl::OkStatus();
}

std::optional<std::string> ReadUserFile(const std::string& path, size_t max_bytes,
                                        std::optional<uid_t> uid) {
  // Opening a pipe must not wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  const absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat status = {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  // A hard link may lead to a file of another user.
  if (uid.has_value() && status.st_uid != *uid) return std::nullopt;
  if (static_cast<uint64_t>(status.st_size) > max_bytes) return std::nullopt;
  std::string contents(static_cast<size_t>(status.st_size), '\0');
  size_t size = 0;
  while (size < contents.size()) {
    const ssize_t n = read(fd, contents.data() + size, contents.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  contents.resize(size);
  return contents;
}

}  // namespace muster::agent
