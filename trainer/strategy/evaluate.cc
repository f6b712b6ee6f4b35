#include "trainer/strategy/evaluate.h"

#include <memory>
#include <vector>

#include "common/status.h"
#include "trainer/data/loader.h"
#include "trainer/data/sampler.h"

namespace muster::train {
namespace {

// Decoded pixels per input pixel in each dimension: high enough that images resemble those at full
// resolution.
constexpr double kDetail = 2;

void Add(const nn::LossResult& result, nn::LossResult& total) {
  total.loss_sum += result.loss_sum;
  total.correct += result.correct;
}

// Batches between two meetings of the ranks.
constexpr uint64_t kBatchesPerMeeting = 8;

struct Meeting {
  bool all_finished = false;  // their batches
  uint64_t samples = 0;       // evaluated by all ranks
};

// Waits for the other ranks and returns their common state; CANCELLED if one was asked to stop. The
// ranks meet regularly, and those that have finished wait in further meetings: none waits longer
// than a few batches of another rank take, however much the ranks' speeds differ over the whole
// dataset.
absl::StatusOr<Meeting> Meet(bool finished, uint64_t samples, const StopRequested& stop_requested,
                             collectives::Communicator& world) {
  // The first two count ranks.
  int64_t counts[3] = {finished, stop_requested(), static_cast<int64_t>(samples)};
  RETURN_IF_ERROR(
      world
          .AllReduce(counts, counts, 3, collectives::DataType::kInt64, collectives::ReduceOp::kSum)
          ->Wait());
  if (counts[1] > 0) return absl::CancelledError("the evaluation was stopped");
  return Meeting{counts[0] == int64_t{world.size()}, static_cast<uint64_t>(counts[2])};
}

Evaluation MeanOver(uint64_t samples, const nn::LossResult& total) {
  const auto count = static_cast<double>(samples);
  return {total.loss_sum / count, total.correct / count};
}

}  // namespace

absl::StatusOr<nn::LossResult> SumOverRanks(absl::Span<const nn::LossResult> own,
                                            collectives::Communicator& world) {
  nn::LossResult total;
  for (const nn::LossResult& slice : own) Add(slice, total);
  RETURN_IF_ERROR(world
                      .AllReduce(&total, &total, 2, collectives::DataType::kFloat64,
                                 collectives::ReduceOp::kSum)
                      ->Wait());
  return total;
}

absl::StatusOr<Evaluation> EvaluateDataset(const data::ImageDataset& dataset,
                                           const EvaluationOptions& options,
                                           kernels::Device& device,
                                           collectives::Communicator& world, BatchLoss loss,
                                           LossSum sum) {
  data::LoaderOptions loading;
  loading.world_size = options.slices;
  loading.threads = options.threads;
  loading.prefetch = options.prefetch;
  loading.transform = options.transform;
  loading.transform.detail = kDetail;
  loading.labels_only = options.labels_only;
  loading.device = &device;
  std::vector<nn::LossResult> totals(options.own_slices);
  uint64_t batches = 0;
  uint64_t samples = 0;  // evaluated by this rank
  uint64_t before = 0;   // of which the last meeting counted these
  Meeting met;
  const auto meet = [&](bool finished) -> absl::Status {
    ASSIGN_OR_RETURN(met, Meet(finished, samples, options.stop_requested, world));
    before = samples;
    options.progress(met.samples);
    return absl::OkStatus();
  };
  for (uint32_t i = 0; i < options.own_slices; ++i) {
    loading.rank = options.slice + i;
    const auto loader = data::Loader::ForEvaluation(&dataset, options.max_samples, loading);
    while (true) {
      ASSIGN_OR_RETURN(const data::Batch* batch, loader->Next());
      if (batch == nullptr) break;
      options.progress(met.samples + samples - before);
      ASSIGN_OR_RETURN(const nn::LossResult result, loss(*batch, batch->global_samples));
      Add(result, totals[i]);
      // All stages of a pipeline evaluate the same samples: only the first one counts them.
      if (!options.labels_only) samples += batch->samples;
      if (++batches % kBatchesPerMeeting == 0) RETURN_IF_ERROR(meet(/*finished=*/false));
    }
  }
  while (!met.all_finished) RETURN_IF_ERROR(meet(/*finished=*/true));
  ASSIGN_OR_RETURN(const nn::LossResult total, sum(totals));
  return MeanOver(dataset.size(), total);
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
  nn::LossResult own;
  uint64_t batches = 0, samples = 0;  // the same on all ranks
  while (true) {
    ASSIGN_OR_RETURN(const data::Batch* batch, loader->Next());
    if (batch == nullptr) break;
    options.progress(samples);
    samples += batch->global_samples;
    if (++batches % kBatchesPerMeeting == 0) {
      RETURN_IF_ERROR(Meet(false, samples, options.stop_requested, world).status());
    }
    for (uint32_t i = 0; i < options.slices; ++i) {
      ASSIGN_OR_RETURN(const nn::LossResult result,
                       loss(batch->Slice(i, options.slices), batch->global_samples * batch->views));
      Add(result, own);
    }
  }
  ASSIGN_OR_RETURN(const nn::LossResult total, SumOverRanks({&own, 1}, world));
  return MeanOver(dataset.size() * options.views, total);
}

}  // namespace muster::train
