// Accuracy and loss over the test set, each sample once, shared among the ranks.
#ifndef MUSTER_TRAINER_STRATEGY_EVALUATE_H_
#define MUSTER_TRAINER_STRATEGY_EVALUATE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "kernels/device.h"
#include "trainer/data/batch.h"
#include "trainer/data/image_dataset.h"
#include "trainer/data/transform.h"
#include "trainer/graph/execution.h"

namespace muster::train {

struct EvaluationOptions {
  data::TransformOptions transform;  // of which augment and detail are not used
  uint32_t max_samples = 0;          // of the plan, at a time
  // The data set is divided into `parts`, of which this rank computes one; the stages of a pipeline
  // compute the same one.
  uint32_t part = 0;
  uint32_t parts = 1;
  bool labels_only = false;  // this rank reads no images
  uint32_t threads = 1;      // of the loader
  uint32_t prefetch = 4;
};

// For an objective that compares augmented views: its loss on the test set, with views drawn as in
// training, always the same ones.
struct ContrastiveEvaluationOptions {
  data::TransformOptions transform;
  uint64_t global_batch = 0;
  // Of each rank's share of a global batch, computed one after the other; the samples of one part
  // are compared with each other.
  uint32_t parts = 1;
  uint32_t views = 2;
  uint64_t seed = 0;
  uint32_t threads = 1;
  uint32_t prefetch = 4;
};

struct Evaluation {
  double loss = 0;      // mean over the samples
  double accuracy = 0;  // 0 to 1
};

// Loss of one batch without training, of global_samples on all ranks; collective where the
// objective is, or the model is in stages.
using BatchLoss = absl::FunctionRef<absl::StatusOr<nn::LossResult>(const data::Batch& batch,
                                                                   uint64_t global_samples)>;

// Collective over `world`. Batches are loaded for `device`. The errors of the data set, of `loss`
// and of the communicator.
absl::StatusOr<Evaluation> EvaluateDataset(const data::ImageDataset& dataset,
                                           const EvaluationOptions& options,
                                           kernels::Device& device,
                                           collectives::Communicator& world, BatchLoss loss);

// The same by the objective's loss. Accuracy is the share of rows whose nearest other row is their
// sample's other view.
absl::StatusOr<Evaluation> EvaluateContrastive(const data::ImageDataset& dataset,
                                               const ContrastiveEvaluationOptions& options,
                                               kernels::Device& device,
                                               collectives::Communicator& world, BatchLoss loss);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_EVALUATE_H_
