#include "trainer/strategy/elastic/shard_tree.h"

#include <algorithm>

namespace muster::train {
namespace {

// Start of the right child; `node` has at least two shards.
uint32_t Middle(ShardRange node) {
  uint32_t left = 1;
  while (2 * left < node.size()) left *= 2;
  return node.begin + left;
}

}  // namespace

ShardTree::ShardTree(uint32_t shards, uint32_t ranks)
    : shards_(shards), ranks_(ranks), roots_(ranks) {
  const ShardRange all = {0, shards};
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const ShardRange own = of(rank);
    FindRoots(all, own, roots_[rank]);
    max_roots_ = std::max(max_roots_, roots(rank));
    uint32_t values = 0;
    for (uint32_t shard = own.begin; shard < own.end; ++shard) {
      max_values_ = std::max(max_values_, ++values);
      values -= AdditionsAfter(rank, shard);
    }
  }
  uint32_t next = 0;
  AppendTotal(all, next);
}

ShardRange ShardTree::of(uint32_t rank) const {
  return {static_cast<uint32_t>(uint64_t{rank} * shards_ / ranks_),
          static_cast<uint32_t>((rank + uint64_t{1}) * shards_ / ranks_)};
}

uint32_t ShardTree::AdditionsAfter(uint32_t rank, uint32_t shard) const {
  const ShardRange own = of(rank);
  uint32_t additions = 0;
  for (ShardRange node = {0, shards_}; node.size() > 1;) {
    if (own.Contains(node) && node.end == shard + 1) ++additions;
    const uint32_t middle = Middle(node);
    node = shard < middle ? ShardRange{node.begin, middle} : ShardRange{middle, node.end};
  }
  return additions;
}

void ShardTree::FindRoots(ShardRange node, ShardRange own, std::vector<ShardRange>& roots) const {
  if (node.end <= own.begin || own.end <= node.begin) return;
  if (own.Contains(node)) return roots.push_back(node);
  FindRoots({node.begin, Middle(node)}, own, roots);
  FindRoots({Middle(node), node.end}, own, roots);
}

// Returns the value that the node's sum ends in. `next` is the first value after the node.
uint32_t ShardTree::AppendTotal(ShardRange node, uint32_t& next) {
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    if (of(rank).Contains(node)) return next++;
  }
  const uint32_t left = AppendTotal({node.begin, Middle(node)}, next);
  const uint32_t right = AppendTotal({Middle(node), node.end}, next);
  total_.push_back({left, right});
  return left;
}

}  // namespace muster::train
