// Reduces gradients and updates parameters in one pass for ranks that share memory: each rank reads
// its shard of all ranks' gradients, updates its shard of the parameters and writes it to all
// ranks' parameters.
//
// All-reducing and then updating all parameters on every rank moves about 4 + 5 floats per
// parameter and rank; with n ranks this moves 2 + 5 / n. Overlapping an all-reduce with backward
// would not help: ranks compute on all cores, and the all-reduce would compete for them.
// (Xu et al. 2020, Automatic Cross-Replica Sharding of Weight Update in Data-Parallel Training.)
//
// When a rank dies in an update, some shards are updated and others are not. All that the missing
// ones are computed from is in shared memory, which outlives the rank: the gradients, which no rank
// changes before all have finished the update; each rank's parameters and optimizer states; and a
// copy of the block that is being updated, from before. A survivor therefore completes the update.
#ifndef MUSTER_TRAINER_STRATEGY_FUSED_SHARED_MEMORY_UPDATE_H_
#define MUSTER_TRAINER_STRATEGY_FUSED_SHARED_MEMORY_UPDATE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
  struct Arguments {
    HostBucketReducer* reducer = nullptr;  // created with sums = false
    Optimizer* optimizer = nullptr;        // elementwise
    size_t elements = 0;                   // of the arrays of both
    // Moves the optimizer's states, which must be complete, to shared memory, for Complete.
    bool shares_states = false;
  };
  // Collective. Returns null if a rank cannot access a peer's memory. `communicator`, reducer and
  // optimizer outlive this object. RESOURCE_EXHAUSTED if the communicator is out of memory.
  static absl::StatusOr<std::unique_ptr<FusedSharedMemoryUpdate>> Create(
      collectives::Communicator* communicator, const Arguments& arguments);

  // This rank's parameters, initially zero, 64-byte aligned. Only this rank accesses them between
  // steps.
  float* parameters() { return own().parameters; }

  // Collective; called after the reducer's Finish. On success every rank has the parameters of one
  // update with the sum of all gradients, which are added in rank order. After an error (the
  // communicator's) the parameters are undefined. ABORTED after Complete on any rank.
  absl::Status Run(const kernels::UpdateScalars* scalars);

  // After an error of any collective, with shares_states: makes this rank's parameters and
  // optimizer states those of the newest update that any rank has begun. Returns whether Run of
  // this update failed on this rank; nullopt, with undefined arrays, if this rank has not begun it.
  // `scalars`: of the last update that it has begun.
  std::optional<bool> Complete(const kernels::UpdateScalars* scalars);

  // Collective; not allowed if the optimizer keeps only this rank's shard. Each rank updates only
  // its shard of the optimizer states and copies it here to memory of rank 0, all ranks at the same
  // time. Returns the states, float32 [states][elements], on rank 0, and null on other ranks. They
  // are valid until the next call with the same `slot`, which must not begin before rank 0 has used
  // them. Only the first call with a slot allocates. Returns the communicator's errors;
  // RESOURCE_EXHAUSTED.
  absl::StatusOr<float*> CopyStates(size_t slot);

  const Shares& shares() const { return shares_; }
  bool shares_states() const { return shares_states_; }
  // After Run: it failed once this rank had updated its shard, of which this rank then has the
  // updated values.
  bool updating() const { return updating_; }

  // Compute time in Run since Create, without waiting.
  absl::Duration kernel_time() const { return kernel_time_; }

 private:
  // How far a rank has come, in its shared memory. A rank that has ended no update is 0, 0.
  struct Progress {
    // Number of updates begun << 32 | blocks of the newest one that are done; or'ed with kSealed
    // once no further update may begin.
    std::atomic<uint64_t> position;
    // The position at which the block that follows was copied to `saved`.
    std::atomic<uint64_t> saved_at;
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  static constexpr uint64_t kSealed = uint64_t{1} << 63;

  // Memory of one rank. The last three are null unless the optimizer's states are shared.
  struct Peer {
    const float* gradients;
    float* parameters;
    float* states = nullptr;  // [states][elements]
    float* saved = nullptr;   // [1 + states][kBlockElements]: of parameters and states
    Progress* progress = nullptr;
  };
  // Memory of a slot of CopyStates.
  struct StatesCopy {
    std::unique_ptr<collectives::Allocation> memory;  // on rank 0
    float* of_first = nullptr;                        // its address in this process
  };

  FusedSharedMemoryUpdate(collectives::Communicator* communicator, const Arguments& arguments);
  const Peer& own() const { return peers_[communicator_->rank()]; }
  Peer PeerAt(float* memory, const float* gradients) const;
  // Floats of a rank's shared memory.
  size_t SharedFloats() const;
  size_t BlocksOf(uint32_t rank) const;
  // ABORTED if a rank has called Complete.
  absl::Status BeginUpdate();
  void SaveBlock(size_t begin, size_t count);
  void UpdateBlock(const kernels::UpdateScalars* scalars, size_t begin, size_t count);
  // Updates a block of this rank's arrays.
  void ComputeBlock(const kernels::UpdateScalars* scalars, size_t begin, size_t count);
  // Waits until the rank is between two updates and lets it begin no other; or until it makes no
  // progress. Returns its position, without kSealed.
  uint64_t Seal(uint32_t rank);
  // Copies the rank's shard, and completes update number `update` of it.
  void CompleteShare(uint32_t rank, uint64_t position, uint64_t update,
                     const kernels::UpdateScalars* scalars);

  collectives::Communicator* const communicator_;
  Optimizer* const optimizer_;
  const bool shares_states_;
  const Shares shares_;
  std::unique_ptr<collectives::Allocation> memory_;  // holds the parameters
  std::vector<Peer> peers_;                          // by rank
  std::vector<StatesCopy> copies_;                   // by slot
  kernels::AlignedFloats sum_;                       // sum of a block's gradients
  std::vector<const void*> addends_;                 // scratch of UpdateBlock
  bool updating_ = false;  // an update has begun that is not completed on all ranks
  absl::Duration kernel_time_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_FUSED_SHARED_MEMORY_UPDATE_H_
