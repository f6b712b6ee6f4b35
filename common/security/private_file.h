// Files that only their owner may read.
#ifndef MUSTER_COMMON_SECURITY_PRIVATE_FILE_H_
#define MUSTER_COMMON_SECURITY_PRIVATE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster::security {

// A file descriptor, closed at the end.
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

// Opens a file for reading that belongs to this user or root and that nobody else may read.
// Errors: NOT_FOUND, PERMISSION_DENIED with the command that closes it, or what the system says.
absl::StatusOr<OwnedFd> OpenPrivateFile(const std::string& path);

// The whole of it. RESOURCE_EXHAUSTED beyond a MiB; otherwise as OpenPrivateFile.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path);
absl::StatusOr<std::string> ReadFrom(const OwnedFd& file, const std::string& path);

// Puts a file of mode 0600 in place of what is at `path`, whole or not at all. With `lock`, an
// exclusive flock on it is held as long as what is returned.
absl::StatusOr<OwnedFd> WritePrivateFile(const std::string& path, absl::string_view text,
                                         bool lock);

// Makes the directory (mode 0700) and those above it. PERMISSION_DENIED when it belongs to another
// user or others may write to it.
absl::Status MakePrivateDirectory(const std::string& path);

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_PRIVATE_FILE_H_
