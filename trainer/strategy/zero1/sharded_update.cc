#include "trainer/strategy/zero1/sharded_update.h"

#include "common/status.h"
#include "trainer/strategy/stopwatch.h"

namespace muster::train {
namespace {

absl::Status KeepShare(const StepParts& parts, const Shares& shares) {
  const Shares::Share own = shares.of(parts.replicas->rank());
  return parts.optimizer->KeepShare(own.begin, own.count());
}

}  // namespace

ShardedOptimizerUpdate::ShardedOptimizerUpdate(const StepParts& parts, GradientReducer* reducer,
                                               std::unique_ptr<ShardedParameters> shards)
    : ParameterUpdate(parts, reducer), shards_(std::move(shards)), own_(shards_->own()) {
  parts_.state->BindParameters(shards_->parameters());
}

absl::Status ShardedOptimizerUpdate::KeepOwnOptimizerStates() {
  return KeepShare(parts_, shards_->shares());
}

absl::Status ShardedOptimizerUpdate::CopyOptimizerStates(const CheckpointRanges& ranges,
                                                         StateSnapshot& snapshot) const {
  return CopyShards(shards_->shares(), ranges, snapshot);
}

absl::Status ShardedOptimizerUpdate::ReduceSquaredNorm() {
  double* const norm =
      parts_.controller->SumOfSquares(reducer_.gradients() + own_.begin, own_.count());
  return norm != nullptr ? shards_->Sum(norm) : absl::OkStatus();
}

absl::Status HostShardedUpdate::Run(StepTimes& times) {
  {
    const Stopwatch stopwatch(times.exposed_communication);
    RETURN_IF_ERROR(ReduceSquaredNorm());
  }
  {
    const Stopwatch stopwatch(kernel_time_);
    RETURN_IF_ERROR(parts_.graphs->Run(kGraphKey, [this] {
      parts_.controller->Decide();
      Optimize(own_.begin, own_.end);
      return absl::OkStatus();
    }));
  }
  updated_ = true;
  {
    const Stopwatch stopwatch(times.exposed_communication);
    RETURN_IF_ERROR(shards_->Gather());
  }
  updated_ = false;
  const Stopwatch stopwatch(kernel_time_);
  parts_.state->UpdateAverage(parts_.controller->scalars());
  return absl::OkStatus();
}

std::optional<bool> HostShardedUpdate::CompleteState() {
  if (!updated_) return false;
  // The loss scale after this step is not known.
  if (parts_.controller->checks_gradients()) return std::nullopt;
  // Outside of the own shard the average is undefined, as the parameters are.
  parts_.state->UpdateAverage(parts_.controller->scalars());
  return true;
}

absl::Status DeviceShardedUpdate::Run(StepTimes&) {
  const Stopwatch stopwatch(kernel_time_);
  return parts_.graphs->Run(kGraphKey, [this]() -> absl::Status {
    RETURN_IF_ERROR(ReduceSquaredNorm());
    parts_.controller->Decide();
    Optimize(own_.begin, own_.end);
    RETURN_IF_ERROR(shards_->Gather());
    parts_.state->UpdateAverage(parts_.controller->scalars());
    return absl::OkStatus();
  });
}

absl::Status FusedShardedUpdate::KeepOwnOptimizerStates() { return KeepShare(parts_, shares()); }

absl::Status FusedShardedUpdate::CopyOptimizerStates(const CheckpointRanges& ranges,
                                                     StateSnapshot& snapshot) const {
  return CopyShards(shares(), ranges, snapshot);
}

std::optional<bool> FusedShardedUpdate::CompleteState() {
  if (!updating()) return false;
  parts_.state->UpdateAverage(parts_.controller->scalars());
  return true;
}

absl::StatusOr<GradientPath> CreateShardedPath(const StepParts& parts) {
  GradientPath path;
  if (parts.path == ReductionPath::kFusedSharedMemory) {
    ASSIGN_OR_RETURN(auto buckets, HostGradientReducer::MakeBuckets(parts, /*scatters=*/false));
    ASSIGN_OR_RETURN(auto fused,
                     FusedUpdate::MakeFused(parts, buckets.get(), /*shares_states=*/false));
    path.reducer = std::make_unique<HostGradientReducer>(parts, std::move(buckets), false);
    path.update = std::make_unique<FusedShardedUpdate>(parts, path.reducer.get(), std::move(fused));
    return path;
  }
  const bool on_devices = parts.path == ReductionPath::kDevice;
  ASSIGN_OR_RETURN(path.reducer, CreateGradientReducer(parts, /*scatters=*/true));
  ASSIGN_OR_RETURN(auto shards,
                   ShardedParameters::Create(
                       on_devices ? parts.context->groups->devices.get() : parts.replicas,
                       &parts.plan->device(), on_devices, parts.plan->parameter_elements()));
  if (on_devices) {
    path.update =
        std::make_unique<DeviceShardedUpdate>(parts, path.reducer.get(), std::move(shards));
  } else {
    path.update = std::make_unique<HostShardedUpdate>(parts, path.reducer.get(), std::move(shards));
  }
  return path;
}

}  // namespace muster::train
