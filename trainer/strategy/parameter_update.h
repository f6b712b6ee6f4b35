// How parameters are updated once a step's gradients were reduced. Which implementation a strategy
// uses is chosen once, when the ranks are connected:
//
//   ReplicatedUpdate  every rank updates all parameters, by the same sums
//   FusedUpdate       ranks that share memory sum and update shares of the parameters in one pass
//
// zero1 has more, where each rank keeps the optimizer's states of its share alone.
#ifndef MUSTER_TRAINER_STRATEGY_PARAMETER_UPDATE_H_
#define MUSTER_TRAINER_STRATEGY_PARAMETER_UPDATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "trainer/strategy/fused_shared_memory_update.h"
#include "trainer/strategy/gradient_reducer.h"

namespace muster::train {

// All optimizer states: the optimizer's own arrays, or ones that were gathered.
class WholeOptimizerStates {
 public:
  explicit WholeOptimizerStates(absl::Span<const OptimizerState> states) : states_(states) {}
  explicit WholeOptimizerStates(std::vector<OptimizerState> gathered)
      : gathered_(std::move(gathered)), states_(gathered_) {}
  absl::Span<const OptimizerState> states() const { return states_; }

 private:
  std::vector<OptimizerState> gathered_;
  absl::Span<const OptimizerState> states_;
};

// For one training thread and one generation.
class ParameterUpdate {
 public:
  // `reducer` outlives the update.
  ParameterUpdate(const StepParts& parts, GradientReducer* reducer)
      : parts_(parts), reducer_(*reducer) {}
  virtual ~ParameterUpdate() = default;
  ParameterUpdate(const ParameterUpdate&) = delete;
  ParameterUpdate& operator=(const ParameterUpdate&) = delete;

  // Collective where it communicates, after GradientReducer::Finish. OK: all ranks have the same
  // new parameters and moving average, or none where the update is skipped. Adds to
  // times.exposed_communication.
  virtual absl::Status Run(StepTimes& times) = 0;

  // Once a checkpoint was read into an optimizer that kept all states for it, before the first
  // step.
  virtual void KeepOwnOptimizerStates() { parts_.optimizer->KeepAll(); }
  // Collective. All states, for a checkpoint of rank 0: valid until the next step.
  virtual absl::StatusOr<WholeOptimizerStates> GatherOptimizerStates() {
    return WholeOptimizerStates(parts_.optimizer->states());
  }

  // Collective operations of one step.
  virtual uint64_t operations() const { return 0; }
  // Time spent on anything but waiting, since it was created.
  virtual absl::Duration kernel_time() const { return kernel_time_; }

 protected:
  static constexpr StepGraphs::Key kGraphKey = {~uint64_t{0}};

  // Updates the elements [begin, end), by StepParts::threads where the work can be divided.
  void Optimize(size_t begin, size_t end);
  bool clips() const { return parts_.context->spec->optimizer().clip_norm() > 0; }

  const StepParts parts_;
  GradientReducer& reducer_;
  absl::Duration kernel_time_;
};

class ReplicatedUpdate : public ParameterUpdate {
 public:
  using ParameterUpdate::ParameterUpdate;
  absl::Status Run(StepTimes& times) override;

 protected:
  // The squared norm of this rank's gradients is in *sum, in the device's memory.
  virtual absl::Status ReduceSquaredNorm(double* sum) { return absl::OkStatus(); }
};

class FusedUpdate : public ParameterUpdate {
 public:
  // Collective. `reducer` sums losses alone. INTERNAL where a rank cannot reach a peer's memory.
  static absl::StatusOr<std::unique_ptr<FusedSharedMemoryUpdate>> MakeFused(
      const StepParts& parts, HostBucketReducer* buckets);
  // Binds the parameters to memory that all ranks reach.
  FusedUpdate(const StepParts& parts, GradientReducer* reducer,
              std::unique_ptr<FusedSharedMemoryUpdate> fused);

  absl::Status Run(StepTimes& times) override;
  absl::StatusOr<WholeOptimizerStates> GatherOptimizerStates() override;
  uint64_t operations() const override { return 1; }
  absl::Duration kernel_time() const override { return kernel_time_ + fused_->kernel_time(); }

 protected:
  const Shares& shares() const { return fused_->shares(); }

 private:
  const std::unique_ptr<FusedSharedMemoryUpdate> fused_;
};

// How a strategy's gradients become an update.
struct GradientPath {
  std::unique_ptr<GradientReducer> reducer;
  std::unique_ptr<ParameterUpdate> update;  // goes before the reducer
};

// Collective. Of strategies whose ranks all keep all optimizer states, by parts.path.
absl::StatusOr<GradientPath> CreateReplicatedPath(const StepParts& parts);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_PARAMETER_UPDATE_H_
