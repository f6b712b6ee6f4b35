#include "trainer/strategy/buckets.h"

namespace muster::train {

std::vector<Bucket> MakeBuckets(absl::Span<const size_t> counts, size_t first_bucket_bytes,
                                size_t bucket_bytes) {
  std::vector<Bucket> buckets;
  Bucket bucket{counts.size(), counts.size()};
  size_t bytes = 0;
  while (bucket.first > 0) {
    --bucket.first;
    bytes += counts[bucket.first] * sizeof(float);
    if (bytes >= (buckets.empty() ? first_bucket_bytes : bucket_bytes)) {
      buckets.push_back(bucket);
      bucket.end = bucket.first;
      bytes = 0;
    }
  }
  if (bucket.end > 0 || buckets.empty()) buckets.push_back(bucket);
  return buckets;
}

}  // namespace muster::train
