// A limit on the rate at which something leaves.
#ifndef MUSTER_COLLECTIVES_TOKEN_BUCKET_H_
#define MUSTER_COLLECTIVES_TOKEN_BUCKET_H_

#include <cstddef>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace muster::collectives {

// Tokens, one per byte, come at a constant rate and are kept up to a burst; who takes more than
// there are waits until the debt is paid. So over any time t at most rate * t + burst bytes leave,
// and a sender that is seldom late by less than burst / rate loses nothing. Time comes in with each
// call, and nobody waits in here. Thread-safe.
class TokenBucket {
 public:
  // Full at first. A rate that is not above 0 is no limit.
  TokenBucket(double bytes_per_second, size_t burst_bytes);

  // From now on; debts and what is kept stay as they are.
  void SetRate(double bytes_per_second, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes `bytes` and says when they may leave: `now`, or later.
  absl::Time Take(size_t bytes, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Refill(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const double burst_;
  absl::Mutex mutex_;
  double rate_ ABSL_GUARDED_BY(mutex_);
  double tokens_ ABSL_GUARDED_BY(mutex_);  // negative: owed
  absl::Time refilled_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_TOKEN_BUCKET_H_
