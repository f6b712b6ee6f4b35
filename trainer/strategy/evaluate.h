// Evaluates accuracy and loss over the test set; every sample is evaluated once, by one rank.
#ifndef MUSTER_TRAINER_STRATEGY_EVALUATE_H_
#define MUSTER_TRAINER_STRATEGY_EVALUATE_H_

#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "collectives/communicator.h"
#include "kernels/device.h"
#include "trainer/data/batch.h"
#include "trainer/data/image_dataset.h"
#include "trainer/data/transform.h"
#include "trainer/graph/execution.h"

namespace muster::train {

// Whether this rank was asked to stop. If so, the evaluation ends early on all ranks.
using StopRequested = std::function<bool()>;
// Receives the number of samples that all ranks have evaluated so far, as far as this rank knows.
using EvaluationProgress = std::function<void(uint64_t samples)>;

struct EvaluationOptions {
  data::TransformOptions transform;  // augment and detail are ignored
  uint32_t max_samples = 0;          // largest batch of the plan
  // This rank evaluates `own_slices` slices of `slices` of the dataset, from slice `slice` on. The
  // stages of a pipeline evaluate the same slice.
  uint32_t slice = 0;
  uint32_t slices = 1;
  uint32_t own_slices = 1;
  bool labels_only = false;  // this rank loads labels but no images
  uint32_t threads = 1;      // loader threads
  uint32_t prefetch = 4;
  StopRequested stop_requested = [] { return false; };
  EvaluationProgress progress = [](uint64_t) {};
};

// Evaluation of an objective that compares augmented views: its loss on the test set, with views
// drawn as in training but from a fixed seed.
struct ContrastiveEvaluationOptions {
  data::TransformOptions transform;
  uint64_t global_batch = 0;
  // Slices of each rank's share of a global batch, evaluated one after the other. Only samples of
  // the same slice are compared with each other.
  uint32_t slices = 1;
  uint32_t views = 2;
  uint64_t seed = 0;
  uint32_t threads = 1;
  uint32_t prefetch = 4;
  StopRequested stop_requested = [] { return false; };
  EvaluationProgress progress = [](uint64_t) {};
};

struct Evaluation {
  double loss = 0;      // mean over the samples
  double accuracy = 0;  // 0 to 1
};

// Computes the loss of one batch in evaluation mode; global_samples counts the samples on all
// ranks. Collective if the objective is or if the model is pipelined.
using BatchLoss = absl::FunctionRef<absl::StatusOr<nn::LossResult>(const data::Batch& batch,
                                                                   uint64_t global_samples)>;

// Collective. Sums the losses of this rank's slices and of all other ranks.
using LossSum =
    absl::FunctionRef<absl::StatusOr<nn::LossResult>(absl::Span<const nn::LossResult> own)>;
// Without a fixed order of additions.
absl::StatusOr<nn::LossResult> SumOverRanks(absl::Span<const nn::LossResult> own,
                                            collectives::Communicator& world);

// Collective over `world`. Loads batches for `device`. Returns errors of the dataset, `loss`, `sum`
// and the communicator; CANCELLED, on all ranks, if one of them was asked to stop.
absl::StatusOr<Evaluation> EvaluateDataset(const data::ImageDataset& dataset,
                                           const EvaluationOptions& options,
                                           kernels::Device& device,
                                           collectives::Communicator& world, BatchLoss loss,
                                           LossSum sum);

// Same, for a contrastive objective. Accuracy is the fraction of views whose nearest neighbor is
// the other view of the same sample.
absl::StatusOr<Evaluation> EvaluateContrastive(const data::ImageDataset& dataset,
                                               const ContrastiveEvaluationOptions& options,
                                               kernels::Device& device,
                                               collectives::Communicator& world, BatchLoss loss);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_EVALUATE_H_
