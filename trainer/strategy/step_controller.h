// Computes what each step's update depends on (learning rate, loss scale, whether gradients are
// finite), and queues step results until they are polled. The device may run several steps behind.
#ifndef MUSTER_TRAINER_STRATEGY_STEP_CONTROLLER_H_
#define MUSTER_TRAINER_STRATEGY_STEP_CONTROLLER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

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

// Used by the training thread of one generation. Steps are consecutive; each calls BeginStep,
// Decide and FinishStep.
class StepController {
 public:
  struct Options {
    // Gradients and losses are reduced between device memories (over groups->devices if there are
    // several ranks), so that only the device determines when a step ends.
    bool reduces_on_devices = false;
    size_t buffer_elements = 0;  // elements of ModelState::buffers(), the running statistics
    // Losses of a step, which are summed: one per accumulation step or micro-batch. 0: one per
    // accumulation step.
    uint32_t losses = 0;
  };
  // `context`, `device` and `state` outlive the controller. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<StepController>> Create(const StrategyContext& context,
                                                                kernels::Device& device,
                                                                ModelState& state,
                                                                const Options& options);

  uint32_t accumulation_steps() const { return accumulation_steps_; }
  // Number of losses; location of each, by accumulation step or micro-batch, and of the factor for
  // its gradient, both in device memory. The factor is null without loss scaling.
  uint32_t losses() const { return losses_; }
  nn::LossResult* loss(uint32_t index) const { return update_->loss(index); }
  const double* loss_scale_factor() const { return update_->loss_scale(); }
  // Scalars for the update kernels; valid after Decide.
  const kernels::UpdateScalars* scalars() const { return update_->scalars(); }

  // After a group has failed, once the device has made all calls: appends the results that have not
  // been polled to `results`. Returns the number of finished steps whose update the device skipped
  // because of the failure. Called instead of PollStepResult. Returns the device's errors.
  absl::StatusOr<uint64_t> TakeResults(std::vector<StepResult>& results);

  // FAILED_PRECONDITION if too many results have not been polled.
  absl::Status BeginStep(uint64_t step);
  // Called before the step's first forward pass. Only issues device calls.
  void BeginForward();
  // This rank's loss, summed over losses(). Waits for the device.
  nn::LossResult OwnLoss() const;
  // Sets the loss of all ranks, if it was reduced by the processes.
  void SetTotalLoss(const nn::LossResult& total);

  // Whether gradients are checked for overflows, i.e. with loss scaling. The next three methods may
  // be called only then.
  bool checks_gradients() const { return scaled_.has_value(); }
  // Checks reduced gradients [count] in device memory. Only issues device calls.
  void CheckGradients(const float* gradients, size_t count);
  // Collective over the processes. Combines the ranks' results of CheckGradients.
  absl::Status AgreeOnGradients();
  // Result of CheckGradients in device memory, for callers that reduce it on the devices instead of
  // calling AgreeOnGradients.
  bool* own_gradients_finite();

  // Called before Decide. Squared norm of gradients [count], in device memory; null if the
  // optimizer does not clip. Only issues device calls.
  double* SumOfSquares(const float* gradients, size_t count) {
    return update_->SumOfSquares(gradients, count);
  }
  // Called once the gradients and their norm are known. Only issues device calls, the same in every
  // step.
  void Decide();
  void FinishStep(uint64_t global_samples);

  // See the methods of the same names in Strategy.
  absl::StatusOr<std::optional<StepResult>> PollStepResult(bool wait);
  const LossScaleState* loss_scale() const {
    return scaled_.has_value() ? &scaled_->state : nullptr;
  }
  // Restores the loss scale of a checkpoint. Only with loss scaling.
  void RestoreLossScale(const LossScaleState& state);
  // Collective; called between steps. Broadcasts `root`'s loss scale.
  absl::Status BroadcastLossScale(uint32_t root);
  // Number of the first `steps` steps that updated the model. Their results must have been polled.
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
  // Result of the next pending step.
  StepResult ResultOf(const kernels::StepRecord& record);
  absl::Status FailureOfGroups() const;
  absl::Status DivergedAt(const StepResult& result) const;

  const v1::TrainSpec& spec_;
  const Schedule& schedule_;
  const ProcessGroups& groups_;
  kernels::Device& device_;
  const bool reduces_on_devices_;
  const uint32_t accumulation_steps_;
  const uint32_t losses_;
  std::unique_ptr<UpdateController> update_;
  std::optional<ScaledLoss> scaled_;
  uint64_t step_ = 0;          // current step
  uint64_t next_result_ = 0;   // step whose result is polled next
  uint64_t failed_steps_ = 0;  // whose results were polled or dropped
  std::array<PendingStep, UpdateController::kStepsAhead> pending_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_STEP_CONTROLLER_H_
