#include "trainer/strategy/evaluate.h"

#include <memory>

#include "common/status.h"
#include "trainer/data/loader.h"
#include "trainer/data/sampler.h"

namespace muster::train {
namespace {

// Decoded pixels per input pixel in each dimension: high enough that images resemble those at full
// resolution.
constexpr double kDetail = 2;

struct Totals {
  double loss_sum = 0;
  double correct = 0;

  void Add(const nn::LossResult& result) {
    loss_sum += result.loss_sum;
    correct += result.correct;
  }
};

// Mean over the samples of all ranks.
absl::StatusOr<Evaluation> MeanOver(uint64_t samples, const Totals& totals,
                                    collectives::Communicator& communicator) {
  double sums[2] = {totals.loss_sum, totals.correct};
  RETURN_IF_ERROR(
      communicator
          .AllReduce(sums, sums, 2, collectives::DataType::kFloat64, collectives::ReduceOp::kSum)
          ->Wait());
  const auto count = static_cast<double>(samples);
  return Evaluation{sums[0] / count, sums[1] / count};
}

}  // namespace

absl::StatusOr<Evaluation> EvaluateDataset(const data::ImageDataset& dataset,
                                           const EvaluationOptions& options,
                                           kernels::Device& device,
                                           collectives::Communicator& world, BatchLoss loss) {
  data::LoaderOptions loading;
  loading.rank = options.slice;
  loading.world_size = options.slices;
  loading.threads = options.threads;
  loading.prefetch = options.prefetch;
  loading.transform = options.transform;
  loading.transform.detail = kDetail;
  loading.labels_only = options.labels_only;
  loading.device = &device;
  const auto loader = data::Loader::ForEvaluation(&dataset, options.max_samples, loading);
  Totals totals;
  while (true) {
    ASSIGN_OR_RETURN(const data::Batch* batch, loader->Next());
    if (batch == nullptr) break;
    ASSIGN_OR_RETURN(const nn::LossResult result, loss(*batch, batch->global_samples));
    totals.Add(result);
  }
  return MeanOver(dataset.size(), totals, world);
}

absl::StatusOr<Evaluation> EvaluateContrastive(const data::ImageDataset& dataset,
                                               const ContrastiveEvaluationOptions& options,
                                               kernels::Device& device,
                                               collectives::Communicator& world, BatchLoss loss) {
  ASSIGN_OR_RETURN(
      const data::StepMap steps,
      data::StepMap::Create(dataset.size(), options.global_batch, /*drop_last=*/false));
  data::LoaderOptions loading;
  loading.rank = world.rank();
  loading.world_size = world.size();
  loading.threads = options.threads;
  loading.prefetch = options.prefetch;
  loading.transform = options.transform;
  loading.seed = options.seed;
  loading.end_step = steps.steps_per_epoch();
  loading.views = options.views;
  loading.device = &device;
  const auto loader = data::Loader::ForTraining(&dataset, steps, loading);
  Totals totals;
  while (true) {
    ASSIGN_OR_RETURN(const data::Batch* batch, loader->Next());
    if (batch == nullptr) break;
    for (uint32_t i = 0; i < options.slices; ++i) {
      ASSIGN_OR_RETURN(const nn::LossResult result,
                       loss(batch->Slice(i, options.slices), batch->global_samples * batch->views));
      totals.Add(result);
    }
  }
  return MeanOver(dataset.size() * options.views, totals, world);
}

}  // namespace muster::train
