// Files that only their owner can access, such as tokens and private keys.
#ifndef MUSTER_COMMON_SECURITY_PRIVATE_FILE_H_
#define MUSTER_COMMON_SECURITY_PRIVATE_FILE_H_

#include <sys/types.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/files/owned_fd.h"

namespace muster::security {

using muster::OwnedFd;

// Opens a file for reading that is owned by this user or root and not accessible to other users.
// `flags` are further ones of open(2). Errors: NOT_FOUND; INVALID_ARGUMENT if it is not a regular
// file; PERMISSION_DENIED, with the chmod command that fixes the mode; otherwise the system's
// error.
absl::StatusOr<OwnedFd> OpenPrivateFile(const std::string& path, int flags = 0);

// Opens a file that this program keeps for itself with these flags of open(2), and takes access
// away from all other users. It follows no symbolic link. Errors: NOT_FOUND; INVALID_ARGUMENT if it
// is not a regular file; PERMISSION_DENIED, with the command that helps, for a file of another
// user; otherwise the system's error.
absl::StatusOr<OwnedFd> OpenOwnFile(const std::string& path, int flags);

// Reads a whole file. RESOURCE_EXHAUSTED if it exceeds 1 MiB; otherwise the errors of
// OpenPrivateFile. ReadFrom uses `path` only in errors.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path);
absl::StatusOr<std::string> ReadFrom(const OwnedFd& file, const std::string& path);

// Durably replaces `path` by a file of mode 0600; see ReplaceFile.
absl::StatusOr<OwnedFd> WritePrivateFile(const std::string& path, absl::string_view text,
                                         bool lock);

enum class DirectoryMode : mode_t {
  kPrivate = 0700,  // only the owner can list or enter it
  kPassage = 0711,  // other users can pass through it to what they know the names of
};

struct DirectoryOptions {
  DirectoryMode mode = DirectoryMode::kPrivate;
  uid_t owner = geteuid();  // another user if root prepares the directory for them
  // If set, a directory that is shared with others and not empty must contain one of these names: a
  // mistyped path must not lock others out of their directory.
  std::vector<std::string> contents = {};
};

// Creates the directory, with missing parents of mode 0711, or takes access away from other users
// if it exists. Errors: PERMISSION_DENIED, with the command that helps, for a directory of another
// user, one whose mode cannot be changed, one that others share, and one that they could replace,
// because its parent is writable by all users and not sticky; FAILED_PRECONDITION if it is a
// symbolic link or no directory; otherwise the system's error.
absl::Status MakePrivateDirectory(const std::string& path, const DirectoryOptions& options = {});

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_PRIVATE_FILE_H_
