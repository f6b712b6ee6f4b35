// Divides a checkpoint among the ranks of zero1. Each rank writes whole tensors, as close as
// possible to its shard of the optimizer states, so that ranks exchange only what their shards cut
// off:
//
//   tensors     aaaaaaaaaabbbbbbbbbccccdddddddeeeeeeee
//   shards      00000000000001111111111111222222222222   optimizer states
//   ranges      00000000001111111112222... rank of the shard that has a tensor's middle
#ifndef MUSTER_TRAINER_STRATEGY_ZERO1_CHECKPOINT_RANGES_H_
#define MUSTER_TRAINER_STRATEGY_ZERO1_CHECKPOINT_RANGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "collectives/communicator.h"
#include "kernels/device.h"
#include "trainer/graph/plan.h"
#include "trainer/optim/optimizer.h"
#include "trainer/strategy/shares.h"

namespace muster::train {

// Elements of the flat array that each rank writes. A range exceeds a shard by at most one tensor.
class CheckpointRanges {
 public:
  CheckpointRanges(absl::Span<const nn::ParameterInfo> parameters, const Shares& shares,
                   uint32_t ranks);

  Shares::Share of(uint32_t rank) const { return {begins_[rank], begins_[rank + 1]}; }

 private:
  std::vector<size_t> begins_;  // by rank, and the number of elements
};

// Collective. `own`: a state whose array is this rank's shard of `shares`. Returns the state's
// elements in this rank's range, in the memory of `device`; memory does not grow with the number of
// ranks. Returns the errors of `world`; RESOURCE_EXHAUSTED.
absl::StatusOr<OptimizerState> GatherRange(collectives::Communicator& world,
                                           kernels::Device& device, const OptimizerState& own,
                                           const Shares& shares, const CheckpointRanges& ranges);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_ZERO1_CHECKPOINT_RANGES_H_
