// A clock for ages of files.
#ifndef MUSTER_COMMON_TIME_FILE_CLOCK_H_
#define MUSTER_COMMON_TIME_FILE_CLOCK_H_

#include <algorithm>

#include "absl/time/time.h"
#include "common/time/time.h"

namespace muster {

// Compared with modification times, which follow the wall clock. Setting the wall clock, forward or
// back, never makes a file older than it is, so that nothing is deleted early. Thread-safe.
class FileClock {
 public:
  explicit FileClock(Time start) : start_(start) {}

  absl::Time At(Time now) const {
    return std::min(now.wall, start_.wall + (now.steady - start_.steady));
  }

 private:
  Time start_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_TIME_FILE_CLOCK_H_
