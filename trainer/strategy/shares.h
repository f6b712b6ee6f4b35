// Divides a flat array into equal shards, one per rank, in whole cache lines, for reduce-scatter
// and all-gather on the padded array. The last shards may be short or empty.
#ifndef MUSTER_TRAINER_STRATEGY_SHARES_H_
#define MUSTER_TRAINER_STRATEGY_SHARES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace muster::train {

class Shares {
 public:
  struct Share {
    size_t begin = 0, end = 0;
    size_t count() const { return end - begin; }
  };

  // `ranks` must not be 0.
  Shares(size_t elements, uint32_t ranks)
      : elements_(elements), ranks_(ranks), length_(RoundUp((elements + ranks - 1) / ranks)) {}

  // Rounds up to whole cache lines.
  static size_t RoundUp(size_t elements) {
    return (elements + kLineElements - 1) / kLineElements * kLineElements;
  }

  size_t elements() const { return elements_; }
  // Elements of a shard, including padding.
  size_t length() const { return length_; }
  // Elements of the array, including padding.
  size_t padded() const { return length_ * ranks_; }
  // Shard of `rank`, without padding.
  Share of(uint32_t rank) const {
    return {std::min(rank * length_, elements_), std::min((rank + 1) * length_, elements_)};
  }

 private:
  static constexpr size_t kLineElements = 16;

  size_t elements_;
  uint32_t ranks_;
  size_t length_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_SHARES_H_
