#include "coordinator/core/owners/wait_histogram.h"

#include <cmath>

namespace muster::core {
namespace {

constexpr int kBuckets = 22;  // below 1 s, 2 s, 4 s, …, 2^20 s, and above

void Add(int bucket, uint32_t count, WaitCounts& counts) {
  while (counts.size() <= bucket) counts.Add(0);
  counts.Set(bucket, counts.Get(bucket) + count);
}

}  // namespace

void AddWait(absl::Duration wait, WaitCounts& counts) {
  int bucket = 0;
  while (bucket + 1 < kBuckets && wait >= absl::Seconds(int64_t{1} << bucket)) ++bucket;
  Add(bucket, 1, counts);
}

void MergeWaits(const WaitCounts& from, WaitCounts& to) {
  for (int bucket = 0; bucket < from.size() && bucket < kBuckets; ++bucket) {
    if (from.Get(bucket) > 0) Add(bucket, from.Get(bucket), to);
  }
}

std::optional<absl::Duration> WaitPercentile(const WaitCounts& counts, double share) {
  uint64_t total = 0;
  for (const uint32_t count : counts) total += count;
  if (total == 0) return std::nullopt;
  const double wanted = std::max(1.0, std::ceil(share * static_cast<double>(total)));
  uint64_t seen = 0;
  int bucket = 0;
  for (; bucket < counts.size(); ++bucket) {
    seen += counts.Get(bucket);
    if (static_cast<double>(seen) >= wanted) break;
  }
  return absl::Seconds(int64_t{1} << bucket);
}

}  // namespace muster::core
