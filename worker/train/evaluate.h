// Accuracy and loss over the test set, each sample once, shared among the ranks.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/collectives/communicator.h"
#include "worker/data/dataset.h"
#include "worker/nn/plan.h"

namespace muster::train {

struct Evaluation {
  double loss = 0;      // mean over the samples
  double accuracy = 0;  // 0 to 1
};

// Collective. Uses the plan's inputs, at most `max_rows` samples at a time. The communicator's
// errors.
absl::StatusOr<Evaluation> Evaluate(const data::ImageDataset& dataset, uint32_t max_rows,
                                    nn::Plan& plan, collectives::Communicator& communicator);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_H_
