// Which gradients are all-reduced together, and how they are scaled for it.
#ifndef MUSTER_TRAINER_STRATEGY_BUCKETS_H_
#define MUSTER_TRAINER_STRATEGY_BUCKETS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/data_type.h"

namespace muster::train {

// Parameters [first, end) in order of use.
struct Bucket {
  size_t first = 0;
  size_t end = 0;
};

// Buckets in the order in which backward completes them, the last parameters first. Each takes
// parameters until it holds at least its size, the first bucket a smaller one, so that
// communication starts early. `counts`: elements (float32) of each parameter in order of use. One
// empty bucket where there are no parameters.
std::vector<Bucket> MakeBuckets(absl::Span<const size_t> counts, size_t first_bucket_bytes,
                                size_t bucket_bytes);

// The factor that each rank's gradients are divided by before an all-reduce, and the sums are
// multiplied by after it. In float16 it is the number of ranks, so that a sum overflows no sooner
// than its terms.
constexpr float RankScale(kernels::DataType type, uint32_t ranks) {
  return type == kernels::DataType::kFloat16 ? static_cast<float>(ranks) : 1.0f;
}

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_BUCKETS_H_
