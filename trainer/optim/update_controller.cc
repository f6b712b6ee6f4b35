#include "trainer/optim/update_controller.h"

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::train {
namespace {

kernels::UpdateRules WithRecords(kernels::UpdateRules rules) {
  rules.records = UpdateController::kStepsAhead;
  return rules;
}

}  // namespace

UpdateController::UpdateController(const kernels::UpdateRules& rules, kernels::Device& device,
                                   uint32_t counted)
    : rules_(WithRecords(rules)), device_(device), counted_(counted) {}

absl::StatusOr<std::unique_ptr<UpdateController>> UpdateController::Create(
    const kernels::UpdateRules& rules, kernels::Device& device, uint32_t counted, uint32_t losses) {
  std::unique_ptr<UpdateController> control(new UpdateController(rules, device, counted));
  ASSIGN_OR_RETURN(control->variables_, device.Allocate(sizeof(Variables), "update scalars"));
  ASSIGN_OR_RETURN(control->losses_,
                   device.Allocate(losses * sizeof(kernels::LossResult), "losses"));
  ASSIGN_OR_RETURN(control->records_,
                   device.AllocateHost(kStepsAhead * sizeof(kernels::StepRecord), "step records"));
  for (auto& event : control->events_) {
    event = device.MakeEvent();
  }
  return control;
}

void UpdateController::SetLossScale(const kernels::LossScaleState& state) {
  device_.CopyToDevice(&variables()->state.loss_scale, &state, sizeof(state));
}

absl::Status UpdateController::Begin(uint64_t step, double learning_rate) {
  if (pending() == kStepsAhead) {
    return absl::FailedPreconditionError(
        absl::StrCat(kStepsAhead, " step results have not been polled; poll them first"));
  }
  if (pending() == 0) next_ = step;
  end_ = step;
  const kernels::StepScalars scalars{.step = step, .learning_rate = learning_rate};
  device_.CopyToDevice(&variables()->step, &scalars, sizeof(scalars));
  return absl::OkStatus();
}

double* UpdateController::SumOfSquares(const float* gradients, size_t count) {
  if (rules_.clip_norm <= 0) return nullptr;
  double* const sum_of_squares = &variables()->sum_of_squares;
  device_.kernels().sum_of_squares(gradients, count, sum_of_squares);
  return sum_of_squares;
}

void UpdateController::Decide(const bool* finite, const uint32_t* failed) {
  device_.kernels().begin_update(rules_,
                                 {.step = &variables()->step,
                                  .losses = losses_.as<kernels::LossResult>(),
                                  .loss_count = counted_,
                                  .finite = finite,
                                  .sum_of_squares = &variables()->sum_of_squares,
                                  .failed = failed},
                                 &variables()->state, &variables()->scalars,
                                 records_.as<kernels::StepRecord>());
}

void UpdateController::Finish() {
  events_[end_ % kStepsAhead]->Record();
  ++end_;
}

absl::StatusOr<std::optional<kernels::StepRecord>> UpdateController::Read(bool wait) {
  if (pending() == 0) return std::nullopt;
  kernels::DeviceEvent& event = *events_[next_ % kStepsAhead];
  if (!wait && !event.Done()) return std::nullopt;
  RETURN_IF_ERROR(event.Wait());
  return records_.as<kernels::StepRecord>()[next_++ % kStepsAhead];
}

}  // namespace muster::train
