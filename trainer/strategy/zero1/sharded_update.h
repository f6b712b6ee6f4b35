// Updates after which each rank has the optimizer's states of its share of the parameters alone
// (Rajbhandari et al. 2020, ZeRO, stage 1). Which one is chosen by StepParts::path:
//
//   HostShardedUpdate    reduce-scatter ── update of the own share ── all-gather, by the processes
//   DeviceShardedUpdate  the same, queued on the devices and captured with the update
//   FusedShardedUpdate   in shared memory, where FusedUpdate divides the update anyway
#ifndef MUSTER_TRAINER_STRATEGY_ZERO1_SHARDED_UPDATE_H_
#define MUSTER_TRAINER_STRATEGY_ZERO1_SHARDED_UPDATE_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/strategy/parameter_update.h"
#include "trainer/strategy/zero1/sharded_parameters.h"

namespace muster::train {

// Common to both that scatter gradients.
class ShardedUpdate : public ParameterUpdate {
 public:
  // Binds the parameters to memory that is gathered.
  ShardedUpdate(const StepParts& parts, GradientReducer* reducer,
                std::unique_ptr<ShardedParameters> shards);

  void KeepOwnOptimizerStates() override;
  // Rank 0 alone gets whole arrays, beside its share: its memory is at its peak while they live.
  absl::StatusOr<WholeOptimizerStates> GatherOptimizerStates() override;
  // The all-gather, and the squared norm.
  uint64_t operations() const override { return clips() ? 2 : 1; }

 protected:
  // Collective, where the optimizer clips: the squared norm over all shares.
  absl::Status ReduceSquaredNorm();

  const std::unique_ptr<ShardedParameters> shards_;
  const Shares::Share own_;
};

class HostShardedUpdate final : public ShardedUpdate {
 public:
  using ShardedUpdate::ShardedUpdate;
  absl::Status Run(StepTimes& times) override;
};

class DeviceShardedUpdate final : public ShardedUpdate {
 public:
  using ShardedUpdate::ShardedUpdate;
  absl::Status Run(StepTimes& times) override;
};

class FusedShardedUpdate final : public FusedUpdate {
 public:
  using FusedUpdate::FusedUpdate;
  void KeepOwnOptimizerStates() override;
  absl::StatusOr<WholeOptimizerStates> GatherOptimizerStates() override;
};

// Collective. By parts.path; parts.replicas has several ranks.
absl::StatusOr<GradientPath> CreateShardedPath(const StepParts& parts);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_ZERO1_SHARDED_UPDATE_H_
