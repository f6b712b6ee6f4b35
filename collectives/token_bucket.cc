#include "collectives/token_bucket.h"

#include <algorithm>

namespace muster::collectives {

TokenBucket::TokenBucket(double bytes_per_second, size_t burst_bytes)
    : burst_(static_cast<double>(burst_bytes)), rate_(bytes_per_second), tokens_(burst_) {}

void TokenBucket::SetRate(double bytes_per_second, SteadyTime now) {
  absl::MutexLock lock(&mutex_);
  Refill(now);
  rate_ = bytes_per_second;
}

SteadyTime TokenBucket::Take(size_t bytes, SteadyTime now) {
  absl::MutexLock lock(&mutex_);
  if (!(rate_ > 0)) return now;
  Refill(now);
  tokens_ -= static_cast<double>(bytes);
  return tokens_ >= 0 ? now : refilled_ + absl::Seconds(-tokens_ / rate_);
}

void TokenBucket::Refill(SteadyTime now) {
  if (refilled_ != SteadyTime(-absl::InfiniteDuration()) && now > refilled_ && rate_ > 0) {
    tokens_ = std::min(burst_, tokens_ + absl::ToDoubleSeconds(now - refilled_) * rate_);
  }
  refilled_ = std::max(refilled_, now);
}

}  // namespace muster::collectives
