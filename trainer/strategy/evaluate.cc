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

// Batches between two meetings of the ranks.
constexpr uint64_t kBatchesPerMeeting = 8;

// Waits for the other ranks, and returns whether all have finished their batches; CANCELLED if one
// was asked to stop. The ranks meet regularly, and those that have finished wait in further
// meetings: none waits longer than a few batches of another rank take, however much the ranks'
// speeds differ over the whole dataset.
absl::StatusOr<bool> Meet(bool finished, const StopRequested& stop_requested,
                          collectives::Communicator& world) {
  int32_t counts[2] = {finished, stop_requested()};  // numbers of ranks
  RETURN_IF_ERROR(
      world
          .AllReduce(counts, counts, 2, collectives::DataType::kInt32, collectives::ReduceOp::kSum)
          ->Wait());
  if (counts[1] > 0) return absl::CancelledError("the evaluation was stopped");
  return counts[0] == static_cast<int32_t>(world.size());
}

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
  uint64_t batches = 0;
  while (true) {
    ASSIGN_OR_RETURN(const data::Batch* batch, loader->Next());
    if (batch == nullptr) break;
    ASSIGN_OR_RETURN(const nn::LossResult result, loss(*batch, batch->global_samples));
    totals.Add(result);
    if (++batches % kBatchesPerMeeting == 0) {
      RETURN_IF_ERROR(Meet(false, options.stop_requested, world).status());
    }
  }
  bool all_finished = false;
  while (!all_finished) {
    ASSIGN_OR_RETURN(all_finished, Meet(true, options.stop_requested, world));
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
  uint64_t batches = 0;  // the same on all ranks
  while (true) {
    ASSIGN_OR_RETURN(const data::Batch* batch, loader->Next());
    if (batch == nullptr) break;
    if (++batches % kBatchesPerMeeting == 0) {
      RETURN_IF_ERROR(Meet(false, options.stop_requested, world).status());
    }
    for (uint32_t i = 0; i < options.slices; ++i) {
      ASSIGN_OR_RETURN(const nn::LossResult result,
                       loss(batch->Slice(i, options.slices), batch->global_samples * batch->views));
      totals.Add(result);
    }
  }
  return MeanOver(dataset.size() * options.views, totals, world);
}

}  // namespace muster::train
