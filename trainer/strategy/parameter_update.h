// Updates the parameters after a step's gradients were reduced. The implementation is chosen once,
// when the ranks are connected:
//
//   ReplicatedUpdate  every rank updates all parameters with the same sums
//   FusedUpdate       ranks that share memory reduce and update parameter shards in one pass
//
// zero1 adds variants in which each rank keeps the optimizer states of its shard only.
#ifndef MUSTER_TRAINER_STRATEGY_PARAMETER_UPDATE_H_
#define MUSTER_TRAINER_STRATEGY_PARAMETER_UPDATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/optim/state_snapshot.h"
#include "trainer/strategy/checkpoint_ranges.h"
#include "trainer/strategy/fused_shared_memory_update.h"
#include "trainer/strategy/gradient_reducer.h"

namespace muster::train {

// Used by one training thread in one generation.
class ParameterUpdate {
 public:
  // `reducer` outlives the update.
  ParameterUpdate(const StepParts& parts, GradientReducer* reducer)
      : parts_(parts), reducer_(*reducer) {}
  virtual ~ParameterUpdate() = default;
  ParameterUpdate(const ParameterUpdate&) = delete;
  ParameterUpdate& operator=(const ParameterUpdate&) = delete;

  // Runs the update after GradientReducer::Finish; collective if it communicates. On success all
  // ranks have the same parameters and moving average, which are unchanged if the update was
  // skipped. Adds to times.exposed_communication.
  virtual absl::Status Run(StepTimes& times) = 0;

  // Called before the first step, after a checkpoint was read into an optimizer that held all
  // states. Drops the states that this rank does not keep. RESOURCE_EXHAUSTED if out of device
  // memory.
  virtual absl::Status KeepOwnOptimizerStates() { return parts_.optimizer->KeepAll(); }
  // Collective. Adds the optimizer states of this rank's range to `snapshot`, which was begun with
  // that range; a FusedUpdate supports only CheckpointRanges::AllOnFirst. The snapshot may refer to
  // memory of this object. Returns the communicator's errors and RESOURCE_EXHAUSTED.
  virtual absl::Status CopyOptimizerStates(const CheckpointRanges& ranges,
                                           StateSnapshot& snapshot) const;

  // Whether this rank can have all parameters and optimizer states, or those of its shard of
  // optimizer_shares(), after a collective has failed: CompleteState then makes them those of the
  // newest update that any rank has begun, or of its shard. Returns whether Run of that update
  // failed on this rank, so that it belongs to the current step; nullopt if the state is not
  // complete.
  virtual bool keeps_complete_state() const { return false; }
  virtual std::optional<bool> CompleteState() { return std::nullopt; }
  // Shards of the optimizer states, of which each rank keeps one; null if it keeps all states.
  virtual const Shares* optimizer_shares() const { return nullptr; }

  // Collective operations per step.
  virtual uint64_t operations() const { return 0; }
  // Compute time since construction, without waiting.
  virtual absl::Duration kernel_time() const { return kernel_time_; }

 protected:
  static constexpr StepGraphs::Key kGraphKey = {~uint64_t{0}};

  // Updates elements [begin, end), in parallel on StepParts::threads if the optimizer is
  // elementwise.
  void Optimize(size_t begin, size_t end);
  // CopyOptimizerStates where the optimizer keeps only this rank's shard of the states.
  absl::Status CopyShards(const Shares& shares, const CheckpointRanges& ranges,
                          StateSnapshot& snapshot) const;
  bool clips() const { return parts_.context->spec->optimizer().clip_norm() > 0; }

  const StepParts parts_;
  GradientReducer& reducer_;
  absl::Duration kernel_time_;
};

class ReplicatedUpdate : public ParameterUpdate {
 public:
  using ParameterUpdate::ParameterUpdate;
  absl::Status Run(StepTimes& times) override;
  bool keeps_complete_state() const override { return true; }
  // Nothing that is called after the update has begun can fail. On devices, a group that fails
  // before makes all updates that are queued skip.
  std::optional<bool> CompleteState() override { return false; }

 protected:
  // Reduces *sum, in device memory, which holds the squared norm of this rank's gradients.
  virtual absl::Status ReduceSquaredNorm(double* sum) { return absl::OkStatus(); }
};

class FusedUpdate : public ParameterUpdate {
 public:
  // Collective. `buckets` reduces losses only. `shares_states`: see FusedSharedMemoryUpdate.
  // INTERNAL if a rank cannot access a peer's memory.
  static absl::StatusOr<std::unique_ptr<FusedSharedMemoryUpdate>> MakeFused(
      const StepParts& parts, HostBucketReducer* buckets, bool shares_states);
  // Binds the parameters to memory that all ranks can access.
  FusedUpdate(const StepParts& parts, GradientReducer* reducer,
              std::unique_ptr<FusedSharedMemoryUpdate> fused);

  absl::Status Run(StepTimes& times) override;
  bool keeps_complete_state() const override { return fused_->shares_states(); }
  std::optional<bool> CompleteState() override;
  absl::Status CopyOptimizerStates(const CheckpointRanges& ranges,
                                   StateSnapshot& snapshot) const override;
  uint64_t operations() const override { return 1; }
  absl::Duration kernel_time() const override { return kernel_time_ + fused_->kernel_time(); }

 protected:
  const Shares& shares() const { return fused_->shares(); }
  // Whether Run has updated this rank's shard and not returned successfully.
  bool updating() const { return fused_->updating(); }

 private:
  const std::unique_ptr<FusedSharedMemoryUpdate> fused_;
};

// A gradient reducer and the parameter update that goes with it.
struct GradientPath {
  std::unique_ptr<GradientReducer> reducer;
  std::unique_ptr<ParameterUpdate> update;  // destroyed before the reducer
};

// Collective. Creates the path for strategies whose ranks all keep all optimizer states, as
// selected by parts.path.
absl::StatusOr<GradientPath> CreateReplicatedPath(const StepParts& parts);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_PARAMETER_UPDATE_H_
