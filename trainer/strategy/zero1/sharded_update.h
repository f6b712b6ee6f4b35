// Updates in which each rank keeps only the optimizer states of its parameter shard (Rajbhandari et
// al. 2020, ZeRO, stage 1). StepParts::path selects the variant:
//
//   HostShardedUpdate    reduce-scatter ── update of the own shard ── all-gather, by the processes
//   DeviceShardedUpdate  the same, queued on the devices and captured with the update
//   FusedShardedUpdate   in shared memory, where FusedUpdate already shards the update
#ifndef MUSTER_TRAINER_STRATEGY_ZERO1_SHARDED_UPDATE_H_
#define MUSTER_TRAINER_STRATEGY_ZERO1_SHARDED_UPDATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/strategy/parameter_update.h"
#include "trainer/strategy/zero1/sharded_parameters.h"

namespace muster::train {

// Base of the two variants that scatter gradients.
class ShardedOptimizerUpdate : public ParameterUpdate {
 public:
  // Binds the parameters to the memory of `shards`.
  ShardedOptimizerUpdate(const StepParts& parts, GradientReducer* reducer,
                         std::unique_ptr<ShardedParameters> shards);

  absl::Status KeepOwnOptimizerStates() override;
  absl::Status CopyOptimizerStates(const CheckpointRanges& ranges,
                                   StateSnapshot& snapshot) const override;
  const Shares* optimizer_shares() const override { return &shards_->shares(); }
  // The all-gather and, with clipping, the squared norm.
  uint64_t operations() const override { return clips() ? 2 : 1; }

 protected:
  // Collective if the optimizer clips: reduces the squared norm over all shards.
  absl::Status ReduceSquaredNorm();

  const std::unique_ptr<ShardedParameters> shards_;
  const Shares::Share own_;
};

class HostShardedUpdate final : public ShardedOptimizerUpdate {
 public:
  using ShardedOptimizerUpdate::ShardedOptimizerUpdate;
  absl::Status Run(StepTimes& times) override;
  bool keeps_complete_state() const override { return parts_.plan->device().host_memory(); }
  std::optional<bool> CompleteState() override;

 private:
  bool updated_ = false;  // Run has updated the own shard and not gathered the others
};

class DeviceShardedUpdate final : public ShardedOptimizerUpdate {
 public:
  using ShardedOptimizerUpdate::ShardedOptimizerUpdate;
  absl::Status Run(StepTimes& times) override;
};

class FusedShardedUpdate final : public FusedUpdate {
 public:
  using FusedUpdate::FusedUpdate;
  absl::Status KeepOwnOptimizerStates() override;
  absl::Status CopyOptimizerStates(const CheckpointRanges& ranges,
                                   StateSnapshot& snapshot) const override;
  const Shares* optimizer_shares() const override { return &shares(); }
  bool keeps_complete_state() const override { return true; }
  std::optional<bool> CompleteState() override;
};

// Collective. Creates the variant selected by parts.path; parts.replicas must have several ranks.
absl::StatusOr<GradientPath> CreateShardedPath(const StepParts& parts);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_ZERO1_SHARDED_UPDATE_H_
