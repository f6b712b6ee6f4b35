// Writes files for daemons that may run as another user than the caller.
#ifndef MUSTER_CLI_IDENTITY_OWNED_FILES_H_
#define MUSTER_CLI_IDENTITY_OWNED_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace muster::cli {

enum class FileMode { kPrivate = 0600, kPublic = 0644 };

// Creates the folder (mode 0700) and its parents, or takes access away from other users if it
// exists. A folder that root creates belongs to the owner of the folder in which it lies. Errors:
// those of security::MakePrivateDirectory.
absl::Status MakeOwnedFolder(const std::string& path);

// Replaces the file atomically. A file that root writes belongs to the owner of the file that it
// replaces or, if there is none, of its folder, which is created if missing.
absl::Status WriteOwnedFile(const std::string& path, absl::string_view text, FileMode mode);

}  // namespace muster::cli

#endif  // MUSTER_CLI_IDENTITY_OWNED_FILES_H_
