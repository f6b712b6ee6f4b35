// A token-bucket rate limiter.
#ifndef MUSTER_COLLECTIVES_TOKEN_BUCKET_H_
#define MUSTER_COLLECTIVES_TOKEN_BUCKET_H_

#include <cstddef>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/time/time.h"

namespace muster::collectives {

// Tokens, one per byte, accrue at a constant rate up to a burst; a caller that takes more than are
// available must wait until the debt is repaid. So over any time t at most rate * t + burst bytes
// are sent, and a sender that is occasionally late by less than burst / rate loses no throughput.
// The caller supplies the time and does the waiting. Thread-safe.
class TokenBucket {
 public:
  // Starts full. A rate of 0 or less means no limit.
  TokenBucket(double bytes_per_second, size_t burst_bytes);

  // Sets the rate from `now` on; accrued tokens and debts are kept.
  void SetRate(double bytes_per_second, SteadyTime now) ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes `bytes` tokens and returns the time at which the bytes may be sent: `now` or later.
  SteadyTime Take(size_t bytes, SteadyTime now) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Refill(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const double burst_;
  absl::Mutex mutex_;
  double rate_ ABSL_GUARDED_BY(mutex_);
  double tokens_ ABSL_GUARDED_BY(mutex_);  // negative: debt
  SteadyTime refilled_ ABSL_GUARDED_BY(mutex_) = SteadyTime(-absl::InfiniteDuration());
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_TOKEN_BUCKET_H_
