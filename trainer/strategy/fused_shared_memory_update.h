// The sum of the gradients and the update in one pass, where the ranks share memory: each rank
// reads its share of everybody's gradients, updates its share of the parameters and writes it to
// everybody's.
//
// An all-reduce before an update of everything by everybody moves about 4 + 5 floats per parameter
// and rank; with n ranks this moves 2 + 5 / n. The all-reduce would not be hidden by backward
// either, where ranks compute on all cores: it takes them from it.
// (Xu et al. 2020, Automatic Cross-Replica Sharding of Weight Update in Data-Parallel Training.)
#ifndef MUSTER_TRAINER_STRATEGY_FUSED_SHARED_MEMORY_UPDATE_H_
#define MUSTER_TRAINER_STRATEGY_FUSED_SHARED_MEMORY_UPDATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"
#include "trainer/optim/optimizer.h"
#include "trainer/strategy/aligned_floats.h"
#include "trainer/strategy/host_bucket_reducer.h"
#include "trainer/strategy/shares.h"

namespace muster::train {

// For one training thread and one generation.
class FusedSharedMemoryUpdate {
 public:
  // Collective. Null where a rank cannot reach a peer's memory. `exchange`, which does not sum, and
  // `optimizer`, which is elementwise, outlive this and have arrays of `elements`.
  // RESOURCE_EXHAUSTED when the communicator has no memory.
  static absl::StatusOr<std::unique_ptr<FusedSharedMemoryUpdate>> Create(
      collectives::Communicator* communicator, HostBucketReducer* exchange, Optimizer* optimizer,
      size_t elements);

  // This rank's, zeros at first, 64-byte aligned. Between steps they are its own to write.
  float* parameters() { return peers_[communicator_->rank()].parameters; }

  // Collective, after the exchange's Finish. OK: every rank's parameters are as one update with the
  // sum of all gradients leaves them, added up in the order of ranks. After an error, the
  // communicator's, they are worth nothing.
  absl::Status Run(const kernels::UpdateScalars* scalars);

  // Collective; not where the optimizer keeps this rank's share alone. Only those of its own share
  // are of worth on each rank; from here to the next step all ranks have all of them. The
  // communicator's errors.
  absl::Status GatherStates();

  const Shares& shares() const { return shares_; }

  // Spent in Run on anything but waiting, since Create.
  absl::Duration kernel_time() const { return kernel_time_; }

 private:
  struct Peer {
    const float* gradients;
    float* parameters;
  };

  FusedSharedMemoryUpdate(collectives::Communicator* communicator, Optimizer* optimizer,
                          size_t elements);
  void UpdateBlock(const kernels::UpdateScalars* scalars, size_t begin, size_t count);

  collectives::Communicator* const communicator_;
  Optimizer* const optimizer_;
  const Shares shares_;
  std::unique_ptr<collectives::Allocation> memory_;  // of the parameters
  std::vector<Peer> peers_;                          // by rank
  AlignedFloats sum_;                                // of a block's gradients
  std::vector<const void*> addends_;                 // scratch of UpdateBlock
  absl::Duration kernel_time_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_FUSED_SHARED_MEMORY_UPDATE_H_
