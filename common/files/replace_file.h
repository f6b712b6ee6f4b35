// Writes files so that a reader sees the old contents, the complete new ones, or no file. Uses only
// standard C++ and POSIX, because the shim does. All functions set errno on failure.
#ifndef MUSTER_COMMON_FILES_REPLACE_FILE_H_
#define MUSTER_COMMON_FILES_REPLACE_FILE_H_

#include <sys/types.h>

#include <string>
#include <string_view>

#include "common/files/owned_fd.h"

namespace muster {

struct ReplaceOptions {
  mode_t mode = 0600;  // set before the file has contents
  bool sync = true;    // the new contents survive a crash of the machine
  bool lock = false;   // the result holds an exclusive flock on the file
  // Name of the temporary file, for a file with one writer: a killed writer leaves no second one.
  // Space that is reserved in it is used. Empty: a new name, which begins with `path` and a dot.
  std::string temporary = {};
};

// Writes a temporary file and renames it to `path`. Returns the open file, or none on failure,
// which leaves the old file, unless only the sync of the directory failed.
OwnedFd ReplaceFile(const std::string& path, std::string_view contents,
                    const ReplaceOptions& options = {});

// Writes all of `data` at the descriptor's position.
bool WriteAll(int fd, std::string_view data);

// Syncs the entries of a directory to disk, so that created or renamed files survive a crash.
bool SyncDirectory(const std::string& path);

}  // namespace muster

#endif  // MUSTER_COMMON_FILES_REPLACE_FILE_H_
