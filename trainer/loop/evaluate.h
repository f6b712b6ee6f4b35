// Accuracy and loss over the test set, each sample once, shared among the ranks.
#ifndef MUSTER_TRAINER_LOOP_EVALUATE_H_
#define MUSTER_TRAINER_LOOP_EVALUATE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "trainer/data/image_dataset.h"
#include "trainer/data/transform.h"
#include "trainer/graph/plan.h"
#include "trainer/objective/objective.h"

namespace muster::train {

struct EvaluationOptions {
  data::TransformOptions transform;  // of which augment and detail are not used
  uint32_t max_rows = 0;             // of the plan, at a time
  // The data set is shared among so many parts, of which this rank computes one; of a pipeline, all
  // its stages the same.
  uint32_t part = 0;
  uint32_t parts = 1;
  uint32_t threads = 1;  // of the loader
  uint32_t prefetch = 4;
};

// Of an objective that compares augmented views: the same on the test set, with views drawn as in
// training, always the same ones.
struct ContrastiveEvaluationOptions {
  data::TransformOptions transform;
  uint64_t global_batch = 0;
  // Of each rank's share of a global batch, computed one after the other; the samples of one part
  // are compared with each other.
  uint32_t parts = 1;
  uint64_t seed = 0;
  uint32_t threads = 1;
  uint32_t prefetch = 4;
};

struct Evaluation {
  double loss = 0;      // mean over the samples
  double accuracy = 0;  // 0 to 1
};

// Collective. Uses the plan's inputs. The data set's, the plan's and the communicator's errors.
absl::StatusOr<Evaluation> Evaluate(const data::ImageDataset& dataset, nn::Plan& plan,
                                    collectives::Communicator& communicator,
                                    const EvaluationOptions& options);

// Collective; by the objective's loss. Accuracy is the share of rows whose nearest other
// row is their sample's other view.
absl::StatusOr<Evaluation> EvaluateContrastive(const data::ImageDataset& dataset, nn::Plan& plan,
                                               Objective& objective,
                                               collectives::Communicator& communicator,
                                               const ContrastiveEvaluationOptions& options);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_EVALUATE_H_
