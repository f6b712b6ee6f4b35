#include "trainer/loop/evaluate.h"

#include <memory>

#include "common/status.h"
#include "trainer/data/input_writer.h"
#include "trainer/data/loader.h"
#include "trainer/data/sampler.h"

namespace muster::train {
namespace {

// Decoded pixels for each one of the network's input, both ways: enough that pictures look as they
// do at full resolution.
constexpr double kDetail = 2;

struct Totals {
  double loss_sum = 0;
  double correct = 0;

  void Add(const nn::LossResult& result) {
    loss_sum += result.loss_sum;
    correct += result.correct;
  }
};

// Of all ranks' rows.
absl::StatusOr<Evaluation> MeanOver(uint64_t rows, const Totals& totals,
                                    collectives::Communicator& communicator) {
  double sums[2] = {totals.loss_sum, totals.correct};
  RETURN_IF_ERROR(
      communicator
          .AllReduce(sums, sums, 2, collectives::DataType::kFloat64, collectives::ReduceOp::kSum)
          ->Wait());
  const auto count = static_cast<double>(rows);
  return Evaluation{sums[0] / count, sums[1] / count};
}

}  // namespace

absl::StatusOr<Evaluation> Evaluate(const data::ImageDataset& dataset, nn::Plan& plan,
                                    collectives::Communicator& communicator,
                                    const EvaluationOptions& options) {
  data::LoaderOptions loading;
  loading.rank = options.part;
  loading.world_size = options.parts;
  loading.threads = options.threads;
  loading.prefetch = options.prefetch;
  loading.transform = options.transform;
  loading.transform.detail = kDetail;
  loading.labels_only = plan.input() == nullptr;
  loading.device = &plan.device();
  const auto loader = data::Loader::ForEvaluation(&dataset, options.max_rows, loading);
  data::InputWriter input(dataset.info(), plan.device());
  Totals totals;
  while (true) {
    ASSIGN_OR_RETURN(const data::Batch* batch, loader->Next());
    if (batch == nullptr) break;
    const auto rows = static_cast<uint32_t>(batch->rows);
    input.Write(*batch, plan.input(), plan.labels());
    plan.Forward(rows, /*training=*/false, nn::StepContext{});
    const nn::LossResult loss = plan.Loss(rows, /*label_smoothing=*/0, /*scale=*/0);
    RETURN_IF_ERROR(plan.status());
    totals.Add(loss);
  }
  return MeanOver(dataset.size(), totals, communicator);
}

absl::StatusOr<Evaluation> EvaluateContrastive(const data::ImageDataset& dataset, nn::Plan& plan,
                                               Objective& objective,
                                               collectives::Communicator& communicator,
                                               const ContrastiveEvaluationOptions& options) {
  ASSIGN_OR_RETURN(
      const data::StepMap steps,
      data::StepMap::Create(dataset.size(), options.global_batch, /*drop_last=*/false));
  data::LoaderOptions loading;
  loading.rank = communicator.rank();
  loading.world_size = communicator.size();
  loading.threads = options.threads;
  loading.prefetch = options.prefetch;
  loading.transform = options.transform;
  loading.seed = options.seed;
  loading.end_step = steps.steps_per_epoch();
  loading.views = objective.views();
  loading.device = &plan.device();
  const auto loader = data::Loader::ForTraining(&dataset, steps, loading);
  data::InputWriter input(dataset.info(), plan.device());
  Totals totals;
  while (true) {
    ASSIGN_OR_RETURN(const data::Batch* batch, loader->Next());
    if (batch == nullptr) break;
    for (uint32_t i = 0; i < options.parts; ++i) {
      const data::Batch part = batch->Part(i, options.parts);
      const auto rows = static_cast<uint32_t>(part.rows);
      input.Write(part, plan.input(), plan.labels());
      plan.Forward(rows, /*training=*/false, nn::StepContext{});
      ASSIGN_OR_RETURN(const nn::LossResult loss,
                       objective.Compute(plan, rows, batch->global_rows * batch->views,
                                         /*training=*/false));
      totals.Add(loss);
    }
  }
  return MeanOver(dataset.size() * objective.views(), totals, communicator);
}

}  // namespace muster::train
