// What a training minimises: from a plan's outputs to the loss and the gradient that backward
// starts from.
#ifndef MUSTER_WORKER_TRAIN_OBJECTIVE_H_
#define MUSTER_WORKER_TRAIN_OBJECTIVE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "worker/collectives/communicator.h"
#include "worker/nn/plan.h"

namespace muster::train {

// The groups that this rank is in; they outlive what is made with them.
struct Communicators {
  collectives::Communicator* world = nullptr;
  // The ranks of this rank's node. Only for objectives that say so; see NeedsNodeCommunicator.
  collectives::Communicator* node = nullptr;
};

// Whether the objective wants Communicators::node.
bool NeedsNodeCommunicator(const v1::ObjectiveSpec& spec);

// For the training thread of one generation.
class Objective {
 public:
  // `spec` with its defaults filled in. max_rows: the plan's CompileOptions::max_batch;
  // output_width: elements of a row of its output. Collective where the objective exchanges
  // anything. Errors: INVALID_ARGUMENT for a spec that it cannot serve; the communicators'.
  static absl::StatusOr<std::unique_ptr<Objective>> Create(const v1::ObjectiveSpec& spec,
                                                           const Communicators& communicators,
                                                           uint32_t max_rows, int64_t output_width);
  virtual ~Objective() = default;

  // Rows that each sample needs: its augmented views, one after the other.
  virtual uint32_t views() const = 0;

  // After plan.Forward of the same rows. The loss is summed over this rank's rows; whoever wants
  // the mean divides the ranks' sum by global_rows (views times the samples of the global batch).
  // When training, writes plan.output_gradient(): that of the mean, as far as it is this rank's
  // rows'.
  //
  // An objective that compares ranks' samples is collective: every rank calls it equally often,
  // also with zero rows. Errors: the communicators'.
  virtual absl::StatusOr<nn::LossResult> Compute(nn::Plan& plan, uint32_t rows,
                                                 uint64_t global_rows, bool training) = 0;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_OBJECTIVE_H_
