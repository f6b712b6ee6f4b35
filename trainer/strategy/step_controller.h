// Decides each step's update and keeps its result until it is polled: learning rate, loss scale,
// whether gradients are finite, and what became of the step on a device that may be behind.
#ifndef MUSTER_TRAINER_STRATEGY_STEP_CONTROLLER_H_
#define MUSTER_TRAINER_STRATEGY_STEP_CONTROLLER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/loss_result.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/optim/model_state.h"
#include "trainer/optim/schedule.h"
#include "trainer/optim/update_controller.h"
#include "trainer/precision/loss_scale.h"
#include "trainer/precision/non_finite_gradient_guard.h"
#include "trainer/strategy/strategy.h"

namespace muster::train {

// For the training thread of one generation. Steps are consecutive; each is BeginStep, Decide,
// FinishStep.
class StepController {
 public:
  struct Options {
    // Gradients and losses are summed between the devices' memories (groups->devices, where there
    // are several ranks), so that only the device knows when a step ends.
    bool reduces_on_devices = false;
    size_t buffer_elements = 0;  // of the running statistics, ModelState::buffers()
  };
  // `context`, `device` and `state` outlive the controller. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<StepController>> Create(const StrategyContext& context,
                                                                kernels::Device& device,
                                                                ModelState& state,
                                                                const Options& options);

  uint32_t accumulation_steps() const { return accumulation_steps_; }
  // Where the loss of an accumulation step is written, and what multiplies its gradient, in the
  // device's memory; the latter null where the loss is not scaled.
  nn::LossResult* loss(uint32_t index) const { return update_->loss(index); }
  const double* loss_scale_factor() const { return update_->loss_scale(); }
  // For the update's kernels, after Decide.
  const kernels::UpdateScalars* scalars() const { return update_->scalars(); }

  // FAILED_PRECONDITION where too many results were not polled.
  absl::Status BeginStep(uint64_t step);
  // Before the step's first forward pass. Only calls the device.
  void BeginForward();
  // The loss of all accumulation steps of this rank; waits for the device.
  nn::LossResult OwnLoss() const;
  // The loss of all ranks, where the processes summed it.
  void SetTotalLoss(const nn::LossResult& total);

  // Whether overflows are looked for, as with a loss scale. Only then the next three.
  bool checks_gradients() const { return scaled_.has_value(); }
  // Summed gradients [count], in the device's memory. Only calls the device.
  void CheckGradients(const float* gradients, size_t count);
  // Collective: by the processes.
  absl::Status AgreeOnGradients();
  // In the device's memory: what CheckGradients found, to be reduced in place of AgreeOnGradients.
  bool* own_gradients_finite();

  // Before Decide: the squared norm of gradients [count], in the device's memory; null where
  // nothing is clipped. Only calls the device.
  double* SumOfSquares(const float* gradients, size_t count) {
    return update_->SumOfSquares(gradients, count);
  }
  // Once gradients and their norm are known. Only calls the device, alike in every step.
  void Decide();
  void FinishStep(uint64_t global_samples);

  // As Strategy's methods of these names.
  absl::StatusOr<std::optional<StepResult>> PollStepResult(bool wait);
  const LossScaleState* loss_scale() const {
    return scaled_.has_value() ? &scaled_->state : nullptr;
  }
  // Only where the loss is scaled: as a checkpoint has it.
  void RestoreLossScale(const LossScaleState& state);
  // Collective, between steps: gives all ranks `root`'s loss scale.
  absl::Status BroadcastLossScale(uint32_t root);
  // Of `steps`, whose results were polled, the number that changed the model.
  uint64_t updates(uint64_t steps) const;

 private:
  struct ScaledLoss {
    LossScaleState state;
    NonFiniteGradientGuard guard;
  };
  struct PendingStep {
    uint64_t step = 0;
    uint64_t global_samples = 0;
    double learning_rate = 0;
  };

  StepController(const StrategyContext& context, kernels::Device& device, const Options& options);
  PendingStep& pending(uint64_t step) { return pending_[step % pending_.size()]; }
  absl::Status AwaitNextResult();
  absl::Status DivergedAt(const StepResult& result) const;

  const v1::TrainSpec& spec_;
  const Schedule& schedule_;
  const ProcessGroups& groups_;
  kernels::Device& device_;
  const bool reduces_on_devices_;
  const uint32_t accumulation_steps_;
  std::unique_ptr<UpdateController> update_;
  std::optional<ScaledLoss> scaled_;
  uint64_t step_ = 0;         // under way
  uint64_t next_result_ = 0;  // the step whose result is polled next
  std::array<PendingStep, UpdateController::kStepsAhead> pending_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_STEP_CONTROLLER_H_
