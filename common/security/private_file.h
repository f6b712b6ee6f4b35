// Files that only their owner can access, such as tokens and private keys.
#ifndef MUSTER_COMMON_SECURITY_PRIVATE_FILE_H_
#define MUSTER_COMMON_SECURITY_PRIVATE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster::security {

// A file descriptor that is closed by the destructor.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd();
  OwnedFd(OwnedFd&& other) noexcept;
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// Opens a file for reading that is owned by this user or root and not accessible to other users.
// Errors: NOT_FOUND; INVALID_ARGUMENT if it is not a regular file; PERMISSION_DENIED, with the
// chmod command that fixes the mode; otherwise the system's error.
absl::StatusOr<OwnedFd> OpenPrivateFile(const std::string& path);

// Reads a whole file. RESOURCE_EXHAUSTED if it exceeds 1 MiB; otherwise the errors of
// OpenPrivateFile. ReadFrom uses `path` only in errors.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path);
absl::StatusOr<std::string> ReadFrom(const OwnedFd& file, const std::string& path);

// Atomically replaces `path` with a file of mode 0600. With `lock`, the returned descriptor holds
// an exclusive flock on the file.
absl::StatusOr<OwnedFd> WritePrivateFile(const std::string& path, absl::string_view text,
                                         bool lock);

// Creates the directory (mode 0700) and its parents. PERMISSION_DENIED if it exists and is owned by
// another user or writable by others.
absl::Status MakePrivateDirectory(const std::string& path);

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_PRIVATE_FILE_H_
