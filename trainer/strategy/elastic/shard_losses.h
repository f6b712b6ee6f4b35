// Sums the losses of all shards in the order of the tree.
#ifndef MUSTER_TRAINER_STRATEGY_ELASTIC_SHARD_LOSSES_H_
#define MUSTER_TRAINER_STRATEGY_ELASTIC_SHARD_LOSSES_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "collectives/communicator.h"
#include "kernels/loss_result.h"
#include "trainer/strategy/elastic/shard_tree.h"

namespace muster::train {

// Used by one training thread. `communicator` and `tree` outlive it.
class ShardLosses {
 public:
  ShardLosses(collectives::Communicator* communicator, const ShardTree* tree);

  // Collective. Starts to gather losses; `own` has one per shard of this rank.
  void Begin(absl::Span<const kernels::LossResult> own);
  // Waits for the losses and returns their sum, or the communicator's error.
  absl::StatusOr<kernels::LossResult> Finish();

 private:
  collectives::Communicator* const communicator_;
  const ShardTree& tree_;
  const std::vector<ShardTree::Addition> additions_;
  std::vector<kernels::LossResult> own_;   // padded to the largest number of shards of a rank
  std::vector<kernels::LossResult> all_;   // the same of all ranks
  std::vector<kernels::LossResult> sums_;  // by shard
  std::shared_ptr<collectives::Work> work_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_ELASTIC_SHARD_LOSSES_H_
