// Reduces gradients and updates parameters in one pass for ranks that share memory: each rank reads
// its shard of all ranks' gradients, updates its shard of the parameters and writes it to all
// ranks' parameters.
//
// All-reducing and then updating all parameters on every rank moves about 4 + 5 floats per
// parameter and rank; with n ranks this moves 2 + 5 / n. Overlapping an all-reduce with backward
// would not help: ranks compute on all cores, and the all-reduce would compete for them.
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
#include "kernels/aligned_floats.h"
#include "trainer/optim/optimizer.h"
#include "trainer/strategy/host_bucket_reducer.h"
#include "trainer/strategy/shares.h"

namespace muster::train {

// Used by one training thread in one generation.
class FusedSharedMemoryUpdate {
 public:
  // Collective. Returns null if a rank cannot access a peer's memory. `reducer` must be created
  // with sums = false and `optimizer` must be elementwise; both outlive this object and have arrays
  // of `elements` elements. RESOURCE_EXHAUSTED if the communicator is out of memory.
  static absl::StatusOr<std::unique_ptr<FusedSharedMemoryUpdate>> Create(
      collectives::Communicator* communicator, HostBucketReducer* reducer, Optimizer* optimizer,
      size_t elements);

  // This rank's parameters, initially zero, 64-byte aligned. Only this rank accesses them between
  // steps.
  float* parameters() { return peers_[communicator_->rank()].parameters; }

  // Collective; called after the reducer's Finish. On success every rank has the parameters of one
  // update with the sum of all gradients, which are added in rank order. After an error (the
  // communicator's) the parameters are undefined.
  absl::Status Run(const kernels::UpdateScalars* scalars);

  // Collective; not allowed if the optimizer keeps only this rank's shard. Each rank updates only
  // its shard of the optimizer states and copies it here to memory of rank 0, all ranks at the same
  // time. Returns the states, float32 [states][elements], on rank 0, and null on other ranks. They
  // are valid until the next call with the same `slot`, which must not begin before rank 0 has used
  // them. Only the first call with a slot allocates. Returns the communicator's errors;
  // RESOURCE_EXHAUSTED.
  absl::StatusOr<float*> CopyStates(size_t slot);

  const Shares& shares() const { return shares_; }

  // Compute time in Run since Create, without waiting.
  absl::Duration kernel_time() const { return kernel_time_; }

 private:
  struct Peer {
    const float* gradients;
    float* parameters;
  };
  // Memory of a slot of CopyStates.
  struct StatesCopy {
    std::unique_ptr<collectives::Allocation> memory;  // on rank 0
    float* of_first = nullptr;                        // its address in this process
  };

  FusedSharedMemoryUpdate(collectives::Communicator* communicator, Optimizer* optimizer,
                          size_t elements);
  void UpdateBlock(const kernels::UpdateScalars* scalars, size_t begin, size_t count);

  collectives::Communicator* const communicator_;
  Optimizer* const optimizer_;
  const Shares shares_;
  std::unique_ptr<collectives::Allocation> memory_;  // holds the parameters
  std::vector<Peer> peers_;                          // by rank
  std::vector<StatesCopy> copies_;                   // by slot
  kernels::AlignedFloats sum_;                       // sum of a block's gradients
  std::vector<const void*> addends_;                 // scratch of UpdateBlock
  absl::Duration kernel_time_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_FUSED_SHARED_MEMORY_UPDATE_H_
