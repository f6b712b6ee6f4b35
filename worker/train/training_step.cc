#include "worker/train/training_step.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/time.h"
#include "worker/train/exit_code.h"
#include "worker/train/stopwatch.h"

namespace muster::train {
namespace {

// Whether the ranks share the update among them; the same on all. A step whose gradients are to be
// looked at before the update needs their sums first.
bool Shards(const StepParts& parts) {
  return parts.communicators.world->backend() == "shm" && parts.plan->device().host_memory() &&
         !parts.canonical_layout && parts.precision.gradients == kernels::DataType::kFloat32 &&
         parts.optimizer->elementwise() &&
         parts.spec->mixed_precision().loss_scale().initial() == 0;
}

ExchangeOptions ExchangeOptionsOf(const StepParts& parts) {
  ExchangeOptions options;
  const v1::StrategySpec& strategy = parts.spec->strategy();
  if (strategy.first_bucket_bytes() > 0) options.first_bucket_bytes = strategy.first_bucket_bytes();
  if (strategy.bucket_bytes() > 0) options.bucket_bytes = strategy.bucket_bytes();
  options.canonical = parts.canonical_layout;
  options.accumulates = parts.spec->accumulation_steps() > 1;
  options.type = parts.precision.gradients;
  options.sums = !Shards(parts);
  return options;
}

absl::Status Diverged(const std::string& what) {
  return WithExitCode(
      absl::FailedPreconditionError(absl::StrCat(
          what,
          ": the training diverged; a smaller learning rate, a warm-up or clip_norm may help")),
      kExitDiverged);
}

}  // namespace

TrainingStep::TrainingStep(const StepParts& parts, const data::DatasetInfo& dataset)
    : parts_(parts),
      micro_batches_(std::max(1u, parts.spec->accumulation_steps())),
      input_(dataset, parts.plan->device()),
      reducer_(parts.communicators.world) {
  const v1::LossScaleSpec& scale = parts.spec->mixed_precision().loss_scale();
  if (scale.initial() == 0) return;
  loss_scale_.emplace(scale);
  guard_.emplace(parts.communicators.world, parts.plan->device(), parts.state->buffers(),
                 parts.plan->buffer_elements());
}

absl::StatusOr<std::unique_ptr<TrainingStep>> TrainingStep::Create(
    const StepParts& parts, const data::DatasetInfo& dataset) {
  std::unique_ptr<TrainingStep> step(new TrainingStep(parts, dataset));
  const auto output_width = static_cast<int64_t>(parts.plan->logits(1).size());
  ASSIGN_OR_RETURN(step->objective_,
                   Objective::Create(parts.spec->objective(), parts.communicators, parts.max_rows,
                                     output_width, parts.plan->device()));
  ASSIGN_OR_RETURN(step->exchange_, GradientExchange::Create(parts.communicators.world, parts.plan,
                                                             ExchangeOptionsOf(parts)));
  parts.state->BindGradients(step->exchange_->gradients());
  if (Shards(parts)) {
    ASSIGN_OR_RETURN(step->sharded_,
                     ShardedUpdate::Create(parts.communicators.world, step->exchange_.get(),
                                           parts.optimizer, parts.plan->parameter_elements()));
    if (step->sharded_ == nullptr) {
      return absl::InternalError("ranks of one node cannot reach each other's memory");
    }
    parts.state->BindParameters(step->sharded_->parameters());
  }
  if (parts.spec->sync_batch_norm()) parts.plan->set_statistics_reducer(&step->reducer_);
  return step;
}

absl::StatusOr<StepOutcome> TrainingStep::Run(const data::Batch& batch, uint64_t step,
                                              StepTimes& times) {
  const absl::Duration kernels_before = KernelTime();
  if (loss_scale_.has_value()) {
    objective_->set_loss_scale(loss_scale_->scale());
    guard_->Begin();
  }
  const uint64_t global_rows = batch.global_rows * batch.views;
  for (uint32_t part = 0; part < micro_batches_; ++part) {
    RETURN_IF_ERROR(Compute(batch.Part(part, micro_batches_), step, global_rows,
                            /*last=*/part + 1 == micro_batches_));
  }
  RETURN_IF_ERROR(FinishExchange(times));

  StepOutcome outcome;
  outcome.loss = exchange_->totals().loss_sum / static_cast<double>(global_rows);
  outcome.accuracy =
      static_cast<double>(exchange_->totals().correct) / static_cast<double>(global_rows);
  outcome.learning_rate = parts_.schedule->LearningRate(step);
  ASSIGN_OR_RETURN(outcome.skipped, ShouldSkip(step, outcome.loss, times));
  if (!outcome.skipped) RETURN_IF_ERROR(Update(step, outcome, times));
  RETURN_IF_ERROR(AdjustScale(step, outcome));
  times.kernels += KernelTime() - kernels_before;
  return outcome;
}

absl::Status TrainingStep::Compute(const data::Batch& part, uint64_t step, uint64_t global_rows,
                                   bool last) {
  nn::Plan& plan = *parts_.plan;
  const auto rows = static_cast<uint32_t>(part.rows);
  {
    const Stopwatch stopwatch(own_kernel_time_);
    input_.Write(part, plan.input(), plan.labels());
  }
  plan.Forward(rows, /*training=*/true,
               {parts_.spec->seed(), step, part.first_row * uint64_t{part.views}});
  ASSIGN_OR_RETURN(const nn::LossResult loss,
                   objective_->Compute(plan, rows, global_rows, /*training=*/true));
  if (!last) {
    plan.Backward(rows, nullptr);
    exchange_->Accumulate(loss);
    return absl::OkStatus();
  }
  exchange_->Begin(loss);
  plan.Backward(rows, [this](size_t offset) { exchange_->Ready(offset); });
  return absl::OkStatus();
}

absl::Status TrainingStep::FinishExchange(StepTimes& times) {
  const SteadyTime backward_end = Now().steady;
  const absl::Duration computed = exchange_->kernel_time();
  RETURN_IF_ERROR(exchange_->Finish());
  RETURN_IF_ERROR(reducer_.status());
  times.exposed_communication +=
      Now().steady - backward_end - (exchange_->kernel_time() - computed);
  return absl::OkStatus();
}

absl::StatusOr<bool> TrainingStep::ShouldSkip(uint64_t step, double loss, StepTimes& times) {
  if (!loss_scale_.has_value()) {
    if (std::isfinite(loss)) return false;
    return Diverged(absl::StrCat("the loss of step ", step + 1, " is ", loss));
  }
  bool overflowed = false;
  {
    const Stopwatch stopwatch(own_kernel_time_);
    overflowed =
        guard_->Overflowed(loss, exchange_->gradients(), parts_.plan->parameter_elements());
  }
  {
    const Stopwatch stopwatch(times.exposed_communication);
    ASSIGN_OR_RETURN(overflowed, guard_->Agree(overflowed));
  }
  return overflowed;
}

absl::Status TrainingStep::Update(uint64_t step, StepOutcome& outcome, StepTimes& times) {
  const uint64_t update = Updates(step);
  if (sharded_ != nullptr) {
    const absl::Duration computed = sharded_->kernel_time();
    const SteadyTime start = Now().steady;
    RETURN_IF_ERROR(sharded_->Run(outcome.learning_rate, update));
    times.exposed_communication += Now().steady - start - (sharded_->kernel_time() - computed);
  }
  const Stopwatch stopwatch(own_kernel_time_);
  if (sharded_ == nullptr) {
    const double gradient_scale = loss_scale_.has_value() ? 1 / loss_scale_->scale() : 1;
    outcome.gradient_norm =
        parts_.optimizer->Step(outcome.learning_rate, update, parts_.state->parameters(),
                               exchange_->gradients(), gradient_scale);
  }
  parts_.state->UpdateAverage(update);
  return absl::OkStatus();
}

absl::Status TrainingStep::GatherOptimizerStates() {
  return sharded_ != nullptr ? sharded_->GatherStates() : absl::OkStatus();
}

absl::Status TrainingStep::AdjustScale(uint64_t step, const StepOutcome& outcome) {
  if (!loss_scale_.has_value()) return absl::OkStatus();
  loss_scale_->StepDone(outcome.skipped);
  if (!loss_scale_->diverged()) return absl::OkStatus();
  return Diverged(absl::StrCat("the loss of step ", step + 1, ", which is ", outcome.loss,
                               ", or its gradients overflowed, as in the ",
                               LossScale::kPatience - 1, " steps before, with a loss scale of ",
                               loss_scale_->scale(), " that cannot fall"));
}

uint64_t TrainingStep::Updates(uint64_t steps) const {
  return loss_scale_.has_value() ? steps - std::min(steps, loss_scale_->skipped_steps()) : steps;
}

absl::Duration TrainingStep::KernelTime() const {
  return parts_.plan->kernel_time() + objective_->kernel_time() + exchange_->kernel_time() +
         (sharded_ != nullptr ? sharded_->kernel_time() : absl::ZeroDuration()) + own_kernel_time_;
}

}  // namespace muster::train
