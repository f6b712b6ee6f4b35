// Sets the wall clock for a test: a library to preload, which adds the number of seconds at the
// start of the file WALL_CLOCK_FILE, a 64-bit integer that may change at any time, to what the
// process reads. Timed waits of the kernel that end by the wall clock follow it, as they would if
// the machine's clock were set.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

constexpr int64_t kNanosPerSecond = 1'000'000'000;
// Interval at which a wait notices that the clock was set.
constexpr int64_t kSliceNanos = 20'000'000;

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

const volatile int64_t* MapOffset() {
  static const int64_t none = 0;
  const char* const path = std::getenv("WALL_CLOCK_FILE");
  const int fd = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return &none;
  void* const mapped = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  return mapped == MAP_FAILED ? &none : static_cast<const int64_t*>(mapped);
}

int64_t Offset() {
  static const volatile int64_t* const offset = MapOffset();
  return *offset;
}

int RealClock(clockid_t clock, timespec* time) {
  static auto* const next = Next<decltype(clock_gettime)>("clock_gettime");
  return next(clock, time);
}

bool IsWallClock(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

int64_t Nanos(const timespec& time) { return time.tv_sec * kNanosPerSecond + time.tv_nsec; }

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = RealClock(clock, time);
  if (result == 0 && IsWallClock(clock)) time->tv_sec += Offset();
  return result;
}

extern "C" int gettimeofday(timeval* time, void* zone) noexcept {
  static auto* const next = Next<int(timeval*, void*)>("gettimeofday");
  const int result = next(time, zone);
  if (result == 0) time->tv_sec += Offset();
  return result;
}

extern "C" time_t time(time_t* result) noexcept {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  if (result != nullptr) *result = now.tv_sec;
  return now.tv_sec;
}

extern "C" int timespec_get(timespec* time, int base) noexcept {
  if (base != TIME_UTC || clock_gettime(CLOCK_REALTIME, time) != 0) return 0;
  return base;
}

// Abseil waits for futexes until a time on the wall clock.
extern "C" long syscall(long number, ...) noexcept {
  static auto* const next = Next<long(long, ...)>("syscall");
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  auto& [word, operation, value, timeout, other, bits] = arguments;
  const auto* const until = reinterpret_cast<const timespec*>(timeout);
  if (number != SYS_futex || (operation & FUTEX_CLOCK_REALTIME) == 0 || until == nullptr) {
    return next(number, word, operation, value, timeout, other, bits);
  }
  while (true) {
    timespec now = {};
    RealClock(CLOCK_REALTIME, &now);
    const int64_t left = Nanos(*until) - Nanos(now) - Offset() * kNanosPerSecond;
    const int64_t end = Nanos(now) + std::clamp(left, int64_t{0}, kSliceNanos);
    const timespec slice = {end / kNanosPerSecond, end % kNanosPerSecond};
    const long result = next(number, word, operation, value, &slice, other, bits);
    if (result != -1 || errno != ETIMEDOUT || left <= kSliceNanos) return result;
  }
}
