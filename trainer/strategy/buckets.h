// Assignment of gradients to all-reduce buckets, and their scaling.
#ifndef MUSTER_TRAINER_STRATEGY_BUCKETS_H_
#define MUSTER_TRAINER_STRATEGY_BUCKETS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/data_type.h"

namespace muster::train {

// Parameters [first, end), in order of use.
struct Bucket {
  size_t first = 0;
  size_t end = 0;
};

// Returns the buckets in the order in which backward completes them, the last parameters first. A
// bucket receives parameters until it reaches bucket_bytes; the first bucket is smaller
// (first_bucket_bytes) so that communication starts early. `counts`: number of float32 elements of
// each parameter, in order of use. Returns one empty bucket if there are no parameters.
std::vector<Bucket> MakeBuckets(absl::Span<const size_t> counts, size_t first_bucket_bytes,
                                size_t bucket_bytes);

// Factor that each rank's gradients are divided by before an all-reduce and that the sums are
// multiplied by afterwards. For float16 it is the number of ranks, so that a sum does not overflow
// unless its terms do.
constexpr float RankScale(kernels::DataType type, uint32_t ranks) {
  return type == kernels::DataType::kFloat16 ? static_cast<float>(ranks) : 1.0f;
}

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_BUCKETS_H_
