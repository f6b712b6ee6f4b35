#include "trainer/strategy/elastic/shard_losses.h"

#include <algorithm>

#include "common/status.h"

namespace muster::train {

using kernels::LossResult;

ShardLosses::ShardLosses(collectives::Communicator* communicator, const ShardTree* tree)
    : communicator_(communicator),
      tree_(*tree),
      // With a rank per shard, the roots are the shards.
      additions_(ShardTree(tree->shards(), tree->shards()).total()),
      own_(tree->max_shards()),
      all_(size_t{tree->max_shards()} * tree->ranks()),
      sums_(tree->shards()) {}

void ShardLosses::Begin(absl::Span<const LossResult> own) {
  static_assert(sizeof(LossResult) == 2 * sizeof(double));
  std::copy(own.begin(), own.end(), own_.begin());
  work_ = communicator_->AllGather(own_.data(), all_.data(), 2 * own_.size(),
                                   collectives::DataType::kFloat64);
}

absl::StatusOr<LossResult> ShardLosses::Finish() {
  RETURN_IF_ERROR(work_->Wait());
  for (uint32_t rank = 0; rank < tree_.ranks(); ++rank) {
    const ShardRange shards = tree_.of(rank);
    std::copy_n(all_.begin() + static_cast<std::ptrdiff_t>(rank * own_.size()), shards.size(),
                sums_.begin() + shards.begin);
  }
  for (const ShardTree::Addition& addition : additions_) {
    sums_[addition.into].loss_sum += sums_[addition.from].loss_sum;
    sums_[addition.into].correct += sums_[addition.from].correct;
  }
  return sums_[0];
}

}  // namespace muster::train
