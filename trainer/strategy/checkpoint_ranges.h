// Divides the parameters and optimizer states of a checkpoint among the ranks that copy them: all
// to the first rank, or whole tensors to each rank, as close as possible to its shard of the
// optimizer states, so that ranks exchange only what their shards cut off:
//
//   tensors     aaaaaaaaaabbbbbbbbbccccdddddddeeeeeeee
//   shards      00000000000001111111111111222222222222   optimizer states
//   ranges      00000000001111111112222... rank of the shard that has a tensor's middle
#ifndef MUSTER_TRAINER_STRATEGY_CHECKPOINT_RANGES_H_
#define MUSTER_TRAINER_STRATEGY_CHECKPOINT_RANGES_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "collectives/communicator.h"
#include "kernels/device.h"
#include "trainer/graph/plan.h"
#include "trainer/strategy/shares.h"

namespace muster::train {

// Elements of the flat array that each rank copies.
class CheckpointRanges {
 public:
  // All elements to rank 0.
  static CheckpointRanges AllOnFirst(size_t elements, uint32_t ranks);
  // Whole tensors to each rank. A range exceeds a shard by at most one tensor.
  static CheckpointRanges Divide(absl::Span<const nn::ParameterInfo> parameters,
                                 const Shares& shares, uint32_t ranks);

  Shares::Share of(uint32_t rank) const { return {begins_[rank], begins_[rank + 1]}; }

 private:
  explicit CheckpointRanges(std::vector<size_t> begins) : begins_(std::move(begins)) {}

  std::vector<size_t> begins_;  // by rank, and the number of elements
};

// Collective. Copies this rank's range of an array of which each rank has its shard of `shares`.
// shard: in the memory of `device`; range: in host memory. Returns the errors of `world`.
absl::Status GatherRange(collectives::Communicator& world, kernels::Device& device,
                         const float* shard, const Shares& shares, const CheckpointRanges& ranges,
                         float* range);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_CHECKPOINT_RANGES_H_
