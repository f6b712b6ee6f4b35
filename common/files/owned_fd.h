// A file descriptor with an owner. Uses only standard C++ and POSIX, because the shim does.
#ifndef MUSTER_COMMON_FILES_OWNED_FD_H_
#define MUSTER_COMMON_FILES_OWNED_FD_H_

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace muster {

// Closes its descriptor when it is destroyed or assigned to, and leaves errno as it is.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() { Close(); }
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.Release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    Close();
    fd_ = other.Release();
    return *this;
  }

  // Negative if there is none.
  int get() const { return fd_; }
  // The caller closes it.
  int Release() { return std::exchange(fd_, -1); }
  void Close() {
    if (fd_ < 0) return;
    const int error = errno;
    close(Release());
    errno = error;
  }

 private:
  int fd_ = -1;
};

// Opens a pipe whose ends are closed on exec. Returns false, with errno set, on failure.
inline bool OpenPipe(OwnedFd& reader, OwnedFd& writer) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  reader = OwnedFd(ends[0]);
  writer = OwnedFd(ends[1]);
  return true;
}

}  // namespace muster

#endif  // MUSTER_COMMON_FILES_OWNED_FD_H_
