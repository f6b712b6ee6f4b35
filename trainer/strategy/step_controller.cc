#include "trainer/strategy/step_controller.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status.h"
#include "common/time/deadline.h"
#include "kernels/update_rules.h"
#include "trainer/exit_code.h"
#include "trainer/strategy/step_result_wait.h"

namespace muster::train {
namespace {

// Time for a group to leave NCCL and to ask which peer has failed, and the pause between two looks.
constexpr absl::Duration kFailurePatience = absl::Seconds(5);
constexpr absl::Duration kFailurePoll = absl::Milliseconds(1);

kernels::UpdateRules RulesOf(const v1::TrainSpec& spec) {
  kernels::UpdateRules rules = UpdateRulesOf(spec.optimizer());
  const v1::LossScaleSpec& scale = spec.mixed_precision().loss_scale();
  rules.scales_loss = scale.initial() != 0;
  rules.loss_scale = LossScaleRulesOf(scale);
  rules.average_decay = spec.ema().decay();
  return rules;
}

absl::Status Diverged(const std::string& what) {
  return WithExitCode(
      absl::FailedPreconditionError(absl::StrCat(
          what, ": training diverged; try a smaller learning rate, a longer warm-up or clip_norm")),
      kExitDiverged);
}

}  // namespace

StepController::StepController(const StrategyContext& context, kernels::Device& device,
                               const Options& options)
    : spec_(*context.spec),
      schedule_(*context.schedule),
      groups_(*context.groups),
      device_(device),
      reduces_on_devices_(options.reduces_on_devices),
      accumulation_steps_(std::max(1u, spec_.accumulation_steps())),
      losses_(options.losses > 0 ? options.losses : accumulation_steps_) {}

absl::StatusOr<std::unique_ptr<StepController>> StepController::Create(
    const StrategyContext& context, kernels::Device& device, ModelState& state,
    const Options& options) {
  std::unique_ptr<StepController> controller(new StepController(context, device, options));
  // Processes reduce one total; devices reduce each loss.
  const uint32_t losses = controller->losses_;
  ASSIGN_OR_RETURN(
      controller->update_,
      UpdateController::Create(RulesOf(*context.spec), device,
                               /*counted=*/options.reduces_on_devices ? losses : 1, losses));
  const v1::LossScaleSpec& scale = context.spec->mixed_precision().loss_scale();
  if (scale.initial() != 0) {
    ASSIGN_OR_RETURN(NonFiniteGradientGuard guard,
                     NonFiniteGradientGuard::Create(context.groups->world.get(), device,
                                                    state.buffers(), options.buffer_elements));
    controller->scaled_.emplace(ScaledLoss{InitialLossScale(scale), std::move(guard)});
    controller->update_->SetLossScale(controller->scaled_->state);
  }
  return controller;
}

absl::Status StepController::BeginStep(uint64_t step) {
  step_ = step;
  pending(step).learning_rate = schedule_.LearningRate(step);
  return update_->Begin(step, pending(step).learning_rate);
}

void StepController::BeginForward() {
  if (scaled_.has_value()) scaled_->guard.Begin();
}

nn::LossResult StepController::OwnLoss() const {
  nn::LossResult sum;
  for (uint32_t index = 0; index < losses_; ++index) {
    nn::LossResult loss;
    device_.CopyToHost(&loss, update_->loss(index), sizeof(loss));
    sum.loss_sum += loss.loss_sum;
    sum.correct += loss.correct;
  }
  return sum;
}

void StepController::SetTotalLoss(const nn::LossResult& total) {
  device_.CopyToDevice(update_->loss(0), &total, sizeof(total));
}

void StepController::CheckGradients(const float* gradients, size_t count) {
  scaled_->guard.Check(gradients, count);
}

absl::Status StepController::AgreeOnGradients() { return scaled_->guard.Agree(); }

bool* StepController::own_gradients_finite() { return scaled_->guard.own_finite(); }

void StepController::Decide() {
  update_->Decide(scaled_.has_value() ? scaled_->guard.finite() : nullptr,
                  groups_.devices != nullptr ? groups_.devices->failed_flag() : nullptr);
  if (scaled_.has_value()) scaled_->guard.Restore(update_->scalars());
}

void StepController::FinishStep(uint64_t global_samples) {
  update_->Finish();
  if (update_->pending() == 1) next_result_ = step_;
  pending(step_).step = step_;
  pending(step_).global_samples = global_samples;
}

absl::StatusOr<std::optional<StepResult>> StepController::PollStepResult(bool wait) {
  wait |= update_->pending() == UpdateController::kStepsAhead;
  if (wait) RETURN_IF_ERROR(AwaitNextResult());
  ASSIGN_OR_RETURN(const std::optional<kernels::StepRecord> record, update_->Read(wait));
  if (!record.has_value()) return std::nullopt;
  if (record->failed != 0) {
    ++failed_steps_;
    absl::Status status = FailureOfGroups();
    groups_.AbortDevices(status);
    return status;
  }
  return ResultOf(*record);
}

StepResult StepController::ResultOf(const kernels::StepRecord& record) {
  const PendingStep& done = pending(next_result_++);
  const auto samples = static_cast<double>(done.global_samples);
  StepResult result;
  result.step = done.step;
  result.loss = record.loss.loss_sum / samples;
  result.accuracy = record.loss.correct / samples;
  result.learning_rate = done.learning_rate;
  result.skipped = record.skipped != 0;
  if (spec_.optimizer().clip_norm() > 0 && !result.skipped) {
    result.gradient_norm = record.gradient_norm;
  }
  if (scaled_.has_value()) scaled_->state = record.loss_scale;
  if (record.diverged != 0) result.diverged = DivergedAt(result);
  return result;
}

// A group that fails sets its flag first. Its status, which names the lost peer, follows.
absl::Status StepController::FailureOfGroups() const {
  for (const Deadline patience(kFailurePatience); !patience.passed();
       absl::SleepFor(kFailurePoll)) {
    absl::Status status = groups_.status();
    if (!status.ok()) return status;
  }
  return absl::InternalError("the gradients of a step were not reduced");
}

absl::StatusOr<uint64_t> StepController::TakeResults(std::vector<StepResult>& results) {
  while (update_->pending() > 0) {
    ASSIGN_OR_RETURN(const std::optional<kernels::StepRecord> record, update_->Read(/*wait=*/true));
    if (record->failed != 0) {
      ++failed_steps_;
    } else {
      results.push_back(ResultOf(*record));
    }
  }
  return failed_steps_;
}

absl::Status StepController::AwaitNextResult() {
  collectives::Communicator* const devices = groups_.devices.get();
  if (!reduces_on_devices_ || devices == nullptr || update_->pending() == 0) {
    return absl::OkStatus();
  }
  const absl::Status waited =
      AwaitStepResult([this] { return update_->Known(); }, [this] { return groups_.status(); },
                      *devices, devices->timeout(), pending(next_result_).step + 1);
  if (!waited.ok()) groups_.AbortDevices(waited);
  return waited;
}

absl::Status StepController::DivergedAt(const StepResult& result) const {
  if (!scaled_.has_value()) {
    return Diverged(absl::StrCat("the loss of step ", result.step + 1, " is ", result.loss));
  }
  return Diverged(absl::StrCat(
      "the loss (", result.loss, ") or the gradients of step ", result.step + 1,
      " overflowed, as in the ", kernels::kLossScalePatience - 1,
      " steps before, and the loss scale of ", scaled_->state.scale, " cannot be reduced"));
}

void StepController::RestoreLossScale(const LossScaleState& state) {
  scaled_->state = RestoredLossScale(spec_.mixed_precision().loss_scale(), state);
  update_->SetLossScale(scaled_->state);
}

absl::Status StepController::BroadcastLossScale(uint32_t root) {
  if (!scaled_.has_value()) return absl::OkStatus();
  const LossScaleState& state = scaled_->state;
  // Step counts are exact in a double.
  double values[] = {state.scale, static_cast<double>(state.clean_steps),
                     static_cast<double>(state.skipped_steps),
                     static_cast<double>(state.overflows_in_row)};
  RETURN_IF_ERROR(
      groups_.world->Broadcast(values, std::size(values), collectives::DataType::kFloat64, root)
          ->Wait());
  RestoreLossScale({.scale = values[0],
                    .clean_steps = static_cast<uint64_t>(values[1]),
                    .skipped_steps = static_cast<uint64_t>(values[2]),
                    .overflows_in_row = static_cast<uint64_t>(values[3])});
  return absl::OkStatus();
}

uint64_t StepController::updates(uint64_t steps) const {
  return scaled_.has_value() ? steps - std::min(steps, scaled_->state.skipped_steps) : steps;
}

}  // namespace muster::train
