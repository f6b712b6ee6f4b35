// The fixed binary tree in which elastic ranks sum what the shards of a global batch contribute.
//
// Floating-point addition is not associative, so a sum is the same for any number of ranks only if
// the same pairs are added. The tree depends on the number of shards alone. A node over n shards
// has a left child over the largest power of two below n:
//
//   5 shards:   ((0 1) (2 3)) 4
//
// A rank runs consecutive shards. It sums the subtrees that lie within them, from which any rank
// computes the total.
#ifndef MUSTER_TRAINER_STRATEGY_ELASTIC_SHARD_TREE_H_
#define MUSTER_TRAINER_STRATEGY_ELASTIC_SHARD_TREE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::train {

// Shards [begin, end).
struct ShardRange {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t size() const { return end - begin; }
  bool Contains(ShardRange inner) const { return begin <= inner.begin && inner.end <= end; }
};

// Immutable.
class ShardTree {
 public:
  // One step of a sum: value `from` is added to value `into`.
  struct Addition {
    uint32_t into = 0;
    uint32_t from = 0;
  };

  // 1 <= ranks <= shards.
  ShardTree(uint32_t shards, uint32_t ranks);

  uint32_t shards() const { return shards_; }
  uint32_t ranks() const { return ranks_; }
  ShardRange of(uint32_t rank) const;
  // Largest number of shards of a rank.
  uint32_t max_shards() const { return (shards_ + ranks_ - 1) / ranks_; }

  // Number of additions that complete subtrees of `rank` once the value of `shard`, one of its
  // shards, is known. Each adds the value before the newest one to it.
  uint32_t AdditionsAfter(uint32_t rank, uint32_t shard) const;
  // Number of values that `rank` is left with after its last shard.
  uint32_t roots(uint32_t rank) const { return static_cast<uint32_t>(roots_[rank].size()); }
  uint32_t max_roots() const { return max_roots_; }
  // Largest number of values that a rank holds at once.
  uint32_t max_values() const { return max_values_; }

  // Sums the values of all ranks' roots, numbered rank by rank, into value 0.
  const std::vector<Addition>& total() const { return total_; }

 private:
  void FindRoots(ShardRange node, ShardRange own, std::vector<ShardRange>& roots) const;
  uint32_t AppendTotal(ShardRange node, uint32_t& next);

  const uint32_t shards_;
  const uint32_t ranks_;
  std::vector<std::vector<ShardRange>> roots_;  // by rank, in order
  uint32_t max_roots_ = 0;
  uint32_t max_values_ = 0;
  std::vector<Addition> total_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_ELASTIC_SHARD_TREE_H_
