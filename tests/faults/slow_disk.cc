// Makes files slow for a test: a library to preload, which delays calls on paths that contain
// SLOW_PATH; with SLOW_RANK, only in the process of that rank. SLOW_WRITE_BYTES_PER_SECOND limits
// the rate of write; SLOW_STAT_MICROSECONDS is added to each fstatat, SLOW_READ_MICROSECONDS to
// each read, SLOW_SYNC_MICROSECONDS to each fdatasync.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

double Setting(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : std::atof(text);
}

bool IsSlow(int fd) {
  const char* const part = std::getenv("SLOW_PATH");
  const char* const only = std::getenv("SLOW_RANK");
  const char* const rank = std::getenv("RANK");
  if (part == nullptr || (only != nullptr && std::strcmp(only, rank) != 0)) return false;
  char link[64];
  char path[4096];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length < 0) return false;
  path[length] = '\0';
  return std::strstr(path, part) != nullptr;
}

void Sleep(double seconds) {
  timespec time;
  time.tv_sec = static_cast<time_t>(seconds);
  time.tv_nsec = static_cast<long>((seconds - static_cast<double>(time.tv_sec)) * 1e9);
  nanosleep(&time, nullptr);
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" ssize_t write(int fd, const void* data, size_t size) {
  static auto* const next = Next<decltype(write)>("write");
  static const double rate = Setting("SLOW_WRITE_BYTES_PER_SECOND");
  const ssize_t written = next(fd, data, size);
  if (written > 0 && rate > 0 && IsSlow(fd)) Sleep(static_cast<double>(written) / rate);
  return written;
}

extern "C" int fdatasync(int fd) {
  static auto* const next = Next<decltype(fdatasync)>("fdatasync");
  static const double microseconds = Setting("SLOW_SYNC_MICROSECONDS");
  if (microseconds > 0 && IsSlow(fd)) Sleep(microseconds / 1e6);
  return next(fd);
}

// The headers define `read` itself in optimized builds.
extern "C" ssize_t SlowRead(int fd, void* data, size_t size) __asm__("read");

ssize_t SlowRead(int fd, void* data, size_t size) {
  static auto* const next = Next<decltype(read)>("read");
  static const double microseconds = Setting("SLOW_READ_MICROSECONDS");
  if (microseconds > 0 && IsSlow(fd)) Sleep(microseconds / 1e6);
  return next(fd, data, size);
}

extern "C" int fstatat(int folder, const char* name, struct stat* info, int flags) noexcept {
  static auto* const next = Next<decltype(fstatat)>("fstatat");
  static const double microseconds = Setting("SLOW_STAT_MICROSECONDS");
  if (microseconds > 0 && IsSlow(folder)) Sleep(microseconds / 1e6);
  return next(folder, name, info, flags);
}
