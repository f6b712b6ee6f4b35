#include "common/files/replace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace muster {

bool WriteAll(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    data.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool SyncDirectory(const std::string& path) {
  const OwnedFd directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return directory.get() >= 0 && fsync(directory.get()) == 0;
}

OwnedFd ReplaceFile(const std::string& path, std::string_view contents,
                    const ReplaceOptions& options) {
  constexpr mode_t kInitialMode = 0600;  // as mkostemp's
  constexpr int kFlags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
  const bool is_new = options.temporary.empty();
  std::string temporary = is_new ? path + ".XXXXXX" : options.temporary;
  OwnedFd file(is_new ? mkostemp(temporary.data(), O_CLOEXEC)
                      : open(temporary.c_str(), kFlags, kInitialMode));
  if (file.get() < 0) return file;
  const bool replaced = (options.mode == kInitialMode || fchmod(file.get(), options.mode) == 0) &&
                        (!options.lock || flock(file.get(), LOCK_EX | LOCK_NB) == 0) &&
                        WriteAll(file.get(), contents) &&
                        // Not before, so that reserved space is overwritten instead of freed.
                        ftruncate(file.get(), static_cast<off_t>(contents.size())) == 0 &&
                        (!options.sync || fsync(file.get()) == 0) &&
                        rename(temporary.c_str(), path.c_str()) == 0;
  if (!replaced) {
    const int error = errno;
    unlink(temporary.c_str());
    errno = error;
    return OwnedFd();
  }
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (options.sync && !SyncDirectory(directory)) return OwnedFd();
  return file;
}

}  // namespace muster
