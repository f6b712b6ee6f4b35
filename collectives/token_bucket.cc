#include "collectives/token_bucket.h"

#include <algorithm>

namespace muster::collectives {

TokenBucket::TokenBucket(double bytes_per_second, size_t burst_bytes)
    : burst_(static_cast<double>(burst_bytes)), rate_(bytes_per_second), tokens_(burst_) {}

void TokenBucket::SetRate(double bytes_per_second, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  Refill(now);
  rate_ = bytes_per_second;
}

absl::Time TokenBucket::Take(size_t bytes, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (!(rate_ > 0)) return now;
  Refill(now);
  tokens_ -= static_cast<double>(bytes);
  return tokens_ >= 0 ? now : refilled_ + absl::Seconds(-tokens_ / rate_);
}

void TokenBucket::Refill(absl::Time now) {
  if (refilled_ != absl::InfinitePast() && now > refilled_ && rate_ > 0) {
    tokens_ = std::min(burst_, tokens_ + absl::ToDoubleSeconds(now - refilled_) * rate_);
  }
  refilled_ = std::max(refilled_, now);
}

}  // namespace muster::collectives
