#include "trainer/strategy/parameter_update.h"

#include <algorithm>

#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "trainer/strategy/stopwatch.h"

namespace muster::train {

void ParameterUpdate::Optimize(size_t begin, size_t end) {
  constexpr size_t kLine = 16;  // elements per cache line; threads must not write to the same line
  float* const parameters = parts_.state->parameters();
  const float* const gradients = reducer_.gradients();
  const auto update = [&](size_t from, size_t to) {
    parts_.optimizer->StepRange(parts_.controller->scalars(), from, to - from, parameters + from,
                                gradients + from);
  };
  kernels::ThreadPool* const threads = parts_.threads;
  if (threads == nullptr || !parts_.plan->device().host_memory() ||
      !parts_.optimizer->elementwise()) {
    update(begin, end);
    return;
  }
  const auto count = static_cast<size_t>(threads->threads());
  const size_t lines = (end - begin + kLine - 1) / kLine;
  threads->Run([&](int part) {
    const auto at = [&](size_t share) {
      return std::min(begin + lines * share / count * kLine, end);
    };
    update(at(static_cast<size_t>(part)), at(static_cast<size_t>(part) + 1));
  });
}

absl::Status ParameterUpdate::CopyOptimizerStates(const CheckpointRanges&,
                                                  StateSnapshot& snapshot) const {
  for (const OptimizerState& state : parts_.optimizer->states()) {
    RETURN_IF_ERROR(
        snapshot.CopyParameters(&ModelTensors::optimizer, state.values.get(), state.name));
  }
  return absl::OkStatus();
}

absl::Status ParameterUpdate::CopyShards(const Shares& shares, const CheckpointRanges& ranges,
                                         StateSnapshot& snapshot) const {
  for (const OptimizerState& state : parts_.optimizer->states()) {
    ASSIGN_OR_RETURN(float* const range,
                     snapshot.AddParameters(&ModelTensors::optimizer, state.name));
    RETURN_IF_ERROR(GatherRange(*parts_.replicas, parts_.plan->device(), state.values.get(), shares,
                                ranges, range));
  }
  return absl::OkStatus();
}

absl::Status ReplicatedUpdate::Run(StepTimes&) {
  const Stopwatch stopwatch(kernel_time_);
  return parts_.graphs->Run(kGraphKey, [this]() -> absl::Status {
    const size_t elements = parts_.plan->parameter_elements();
    double* const norm = parts_.controller->SumOfSquares(reducer_.gradients(), elements);
    if (norm != nullptr) RETURN_IF_ERROR(ReduceSquaredNorm(norm));
    parts_.controller->Decide();
    // Devices skip an update if a group has failed.
    if (parts_.path == ReductionPath::kDevice) {
      parts_.state->RestoreBuffersOfSkippedStep(parts_.controller->scalars());
    }
    Optimize(0, elements);
    parts_.state->UpdateAverage(parts_.controller->scalars());
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<FusedSharedMemoryUpdate>> FusedUpdate::MakeFused(
    const StepParts& parts, HostBucketReducer* buckets, bool shares_states) {
  ASSIGN_OR_RETURN(auto fused, FusedSharedMemoryUpdate::Create(
                                   parts.replicas, {.reducer = buckets,
                                                    .optimizer = parts.optimizer,
                                                    .elements = parts.plan->parameter_elements(),
                                                    .shares_states = shares_states}));
  if (fused == nullptr) {
    return absl::InternalError("a rank cannot map the shared memory of a peer on its node");
  }
  return fused;
}

FusedUpdate::FusedUpdate(const StepParts& parts, GradientReducer* reducer,
                         std::unique_ptr<FusedSharedMemoryUpdate> fused)
    : ParameterUpdate(parts, reducer), fused_(std::move(fused)) {
  parts_.state->BindParameters(fused_->parameters());
}

absl::Status FusedUpdate::Run(StepTimes& times) {
  {
    const Stopwatch stopwatch(kernel_time_);
    // Optimizers that clip by norm do not use the fused update.
    parts_.controller->Decide();
  }
  const absl::Duration computed = fused_->kernel_time();
  const SteadyTime start = Now().steady;
  RETURN_IF_ERROR(fused_->Run(parts_.controller->scalars()));
  times.exposed_communication += Now().steady - start - (fused_->kernel_time() - computed);
  const Stopwatch stopwatch(kernel_time_);
  parts_.state->UpdateAverage(parts_.controller->scalars());
  return absl::OkStatus();
}

std::optional<bool> FusedUpdate::CompleteState() {
  if (!keeps_complete_state()) return std::nullopt;
  const std::optional<bool> updated = fused_->Complete(parts_.controller->scalars());
  if (updated.value_or(false)) parts_.state->UpdateAverage(parts_.controller->scalars());
  return updated;
}

absl::Status FusedUpdate::CopyOptimizerStates(const CheckpointRanges&,
                                              StateSnapshot& snapshot) const {
  ASSIGN_OR_RETURN(float* states, fused_->CopyStates(snapshot.slot()));
  if (states == nullptr) return absl::OkStatus();
  for (const OptimizerState& state : parts_.optimizer->states()) {
    snapshot.AddParameters(&ModelTensors::optimizer, state.name, states);
    states += shares().elements();
  }
  return absl::OkStatus();
}

absl::StatusOr<GradientPath> CreateReplicatedPath(const StepParts& parts) {
  GradientPath path;
  if (parts.path == ReductionPath::kFusedSharedMemory) {
    ASSIGN_OR_RETURN(auto buckets, HostGradientReducer::MakeBuckets(parts, /*scatters=*/false));
    ASSIGN_OR_RETURN(auto fused,
                     FusedUpdate::MakeFused(parts, buckets.get(), /*shares_states=*/true));
    path.reducer = std::make_unique<HostGradientReducer>(parts, std::move(buckets), false);
    path.update = std::make_unique<FusedUpdate>(parts, path.reducer.get(), std::move(fused));
    return path;
  }
  ASSIGN_OR_RETURN(path.reducer, CreateGradientReducer(parts, /*scatters=*/false));
  path.update = std::make_unique<ReplicatedUpdate>(parts, path.reducer.get());
  return path;
}

}  // namespace muster::train
