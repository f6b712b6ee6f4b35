#include "worker/train/training_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/time.h"
#include "worker/train/exit_code.h"

namespace muster::train {
namespace {

ExchangeOptions ExchangeOptionsOf(const v1::TrainSpec& spec, bool canonical) {
  ExchangeOptions options;
  const v1::StrategySpec& strategy = spec.strategy();
  if (strategy.first_bucket_bytes() > 0) options.first_bucket_bytes = strategy.first_bucket_bytes();
  if (strategy.bucket_bytes() > 0) options.bucket_bytes = strategy.bucket_bytes();
  options.canonical = canonical;
  options.accumulates = spec.accumulation_steps() > 1;
  return options;
}

}  // namespace

TrainingStep::TrainingStep(const StepParts& parts, const data::DatasetInfo& dataset)
    : parts_(parts),
      micro_batches_(std::max(1u, parts.spec->accumulation_steps())),
      normalizer_(dataset),
      reducer_(parts.communicators.world) {}

absl::StatusOr<std::unique_ptr<TrainingStep>> TrainingStep::Create(
    const StepParts& parts, const data::DatasetInfo& dataset) {
  std::unique_ptr<TrainingStep> step(new TrainingStep(parts, dataset));
  const auto output_width = static_cast<int64_t>(parts.plan->logits(1).size());
  ASSIGN_OR_RETURN(step->objective_, Objective::Create(parts.spec->objective(), parts.communicators,
                                                       parts.max_rows, output_width));
  ASSIGN_OR_RETURN(step->exchange_, GradientExchange::Create(
                                        parts.communicators.world, parts.plan,
                                        ExchangeOptionsOf(*parts.spec, parts.canonical_layout)));
  parts.state->BindGradients(step->exchange_->gradients());
  if (parts.spec->sync_batch_norm()) parts.plan->set_statistics_reducer(&step->reducer_);
  return step;
}

absl::StatusOr<StepOutcome> TrainingStep::Run(const data::Batch& batch, uint64_t step,
                                              StepTimes& times) {
  const uint64_t global_rows = batch.global_rows * batch.views;
  for (uint32_t part = 0; part < micro_batches_; ++part) {
    RETURN_IF_ERROR(Compute(batch.Part(part, micro_batches_), step, global_rows,
                            /*last=*/part + 1 == micro_batches_));
  }
  const SteadyTime backward_end = Now().steady;
  RETURN_IF_ERROR(exchange_->Finish());
  RETURN_IF_ERROR(reducer_.status());
  times.exposed_communication += Now().steady - backward_end;

  StepOutcome outcome;
  outcome.loss = exchange_->totals().loss_sum / static_cast<double>(global_rows);
  outcome.accuracy =
      static_cast<double>(exchange_->totals().correct) / static_cast<double>(global_rows);
  if (!std::isfinite(outcome.loss)) {
    return WithExitCode(
        absl::FailedPreconditionError(absl::StrCat(
            "the loss of step ", step + 1, " is ", outcome.loss,
            ": the training diverged; a smaller learning rate, a warm-up or clip_norm may help")),
        kExitDiverged);
  }
  outcome.learning_rate = parts_.schedule->LearningRate(step);
  outcome.gradient_norm = parts_.optimizer->Step(
      outcome.learning_rate, step, parts_.state->parameters(), exchange_->gradients());
  parts_.state->UpdateAverage(step);
  return outcome;
}

absl::Status TrainingStep::Compute(const data::Batch& part, uint64_t step, uint64_t global_rows,
                                   bool last) {
  nn::Plan& plan = *parts_.plan;
  const auto rows = static_cast<uint32_t>(part.rows);
  normalizer_.Apply(part, plan.input());
  std::copy(part.labels.begin(), part.labels.end(), plan.labels());
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

}  // namespace muster::train
