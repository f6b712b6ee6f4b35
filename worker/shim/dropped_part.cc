#include "worker/shim/dropped_part.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>

namespace muster::shim {

bool DropBefore(int fd, uint64_t end) {
  if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(end)) != 0) {
    return false;
  }
  if (FirstKeptOffset(fd) == end) return true;
  errno = EOPNOTSUPP;
  return false;
}

uint64_t FirstKeptOffset(int fd) {
  const off_t first = lseek(fd, 0, SEEK_DATA);
  return first < 0 ? 0 : static_cast<uint64_t>(first);
}

}  // namespace muster::shim
