#include "worker/agent/user_files.h"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/files/owned_fd.h"
#include "common/security/private_file.h"
#include "common/status.h"
#include "glog/logging.h"

namespace muster::agent {
namespace {

// The system call sets the groups of this thread; glibc's function sets those of all threads.
bool SetGroups(const std::vector<gid_t>& groups) {
  return syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
}

bool SetCapabilities(const __user_cap_data_struct* data) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  return syscall(SYS_capset, &header, data) == 0;
}

// These functions return the former id, also on failure; an invalid id only returns it.
bool SetFsIds(uid_t uid, gid_t gid) {
  setfsgid(gid);
  setfsuid(uid);
  return static_cast<gid_t>(setfsgid(static_cast<gid_t>(-1))) == gid &&
         static_cast<uid_t>(setfsuid(static_cast<uid_t>(-1))) == uid;
}

}  // namespace

UserRights::UserRights(const std::optional<JobUser>& user) {
  if (!user.has_value()) return;
  status_ = Take(user->credentials);
  if (!status_.ok() && taken_) Restore();
}

UserRights::~UserRights() {
  if (status_.ok() && taken_) Restore();
}

absl::Status UserRights::Take(const shim::Credentials& user) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  if (syscall(SYS_capget, &header, capabilities_) != 0) return ErrnoStatus(errno, "capget");
  const int count = getgroups(0, nullptr);
  groups_.resize(static_cast<size_t>(std::max(count, 0)));
  if (count < 0 || getgroups(count, groups_.data()) != count) {
    return ErrnoStatus(errno, "getgroups");
  }
  uid_ = static_cast<uid_t>(setfsuid(static_cast<uid_t>(-1)));
  gid_ = static_cast<gid_t>(setfsgid(static_cast<gid_t>(-1)));
  taken_ = true;
  if (!SetGroups(user.groups)) return ErrnoStatus(errno, "setgroups");
  if (!SetFsIds(user.uid, user.gid)) return absl::PermissionDeniedError("setfsuid is not allowed");
  // Permitted capabilities remain, for Restore.
  __user_cap_data_struct reduced[_LINUX_CAPABILITY_U32S_3];
  for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; ++i) {
    reduced[i] = capabilities_[i];
    reduced[i].effective = 0;
  }
  if (!SetCapabilities(reduced)) return ErrnoStatus(errno, "capset");
  return absl::OkStatus();
}

void UserRights::Restore() {
  // A change of the file system uid changes capabilities, too.
  const bool restored = SetCapabilities(capabilities_) && SetFsIds(uid_, gid_) &&
                        SetGroups(groups_) && SetCapabilities(capabilities_);
  // The thread must not continue with a job's rights, and nothing can fail that was allowed before.
  if (!restored) LOG(FATAL) << "cannot restore the rights of a thread";
}

absl::Status MakePassage(const std::string& path) {
  return security::MakePrivateDirectory(path, {.mode = security::DirectoryMode::kPassage});
}

absl::Status MakeUserDirectory(const std::string& path, const JobUser& user) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("mkdir ", path));
  }
  const OwnedFd directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (directory.get() < 0) {
    return absl::FailedPreconditionError(absl::StrCat("open ", path, ": ", std::strerror(errno)));
  }
  if (fchown(directory.get(), user.credentials.uid, user.credentials.gid) != 0) {
    return ErrnoStatus(errno, absl::StrCat("give ", path, " to ", user.name));
  }
  if (fchmod(directory.get(), 0700) != 0) return ErrnoStatus(errno, absl::StrCat("chmod ", path));
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
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status = {};
  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  // A hard link may lead to a file of another user.
  if (uid.has_value() && status.st_uid != *uid) return std::nullopt;
  if (static_cast<uint64_t>(status.st_size) > max_bytes) return std::nullopt;
  std::string contents(static_cast<size_t>(status.st_size), '\0');
  size_t size = 0;
  while (size < contents.size()) {
    const ssize_t n = read(file.get(), contents.data() + size, contents.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  contents.resize(size);
  return contents;
}

}  // namespace muster::agent
