// One step of one rank: its rows of the global batch forward and backward, the gradients summed
// over the ranks while backward still runs, the update; or, where ranks share memory and the update
// allows it, sum and update in one pass after backward.
#ifndef MUSTER_WORKER_TRAIN_TRAINING_STEP_H_
#define MUSTER_WORKER_TRAIN_TRAINING_STEP_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "worker/data/batch.h"
#include "worker/data/input_writer.h"
#include "worker/nn/plan.h"
#include "worker/train/gradient_exchange.h"
#include "worker/train/loss_scale.h"
#include "worker/train/model_state.h"
#include "worker/train/objective.h"
#include "worker/train/optimizer.h"
#include "worker/train/overflow_guard.h"
#include "worker/train/schedule.h"
#include "worker/train/sharded_update.h"
#include "worker/train/statistics_reducer.h"
#include "worker/train/step_statistics.h"
#include "worker/train/training_precision.h"

namespace muster::train {

// What a step works on; all of it outlives the step.
struct StepParts {
  const v1::TrainSpec* spec = nullptr;
  nn::Plan* plan = nullptr;
  Optimizer* optimizer = nullptr;
  const Schedule* schedule = nullptr;
  ModelState* state = nullptr;
  Communicators communicators;
  TrainingPrecision precision;
  uint32_t max_rows = 0;          // of the plan
  bool canonical_layout = false;  // ranks lay their arrays out differently
};

// What all ranks agree on about a step. Means are over the global batch, before the update.
struct StepOutcome {
  double loss = 0;
  double accuracy = 0;
  double learning_rate = 0;
  std::optional<double> gradient_norm;  // where the optimizer clips
  // The loss or a gradient overflowed somewhere: there was no update. Only with a loss scale;
  // the loss may be no finite number then.
  bool skipped = false;
};

// For the training thread of one generation. A step allocates nothing but what the communicators
// do.
class TrainingStep {
 public:
  // Collective. Binds the plan's gradients. The communicators' errors.
  static absl::StatusOr<std::unique_ptr<TrainingStep>> Create(const StepParts& parts,
                                                              const data::DatasetInfo& dataset);

  // Collective; step number `step`, counted from 0. Adds to times.exposed_communication and
  // times.kernels. The update runs on all ranks or, after an error, on none that could tell it to
  // others: the communicators' errors, and kExitDiverged where the loss is no finite number, or
  // with a loss scale where no scale helps.
  absl::StatusOr<StepOutcome> Run(const data::Batch& batch, uint64_t step, StepTimes& times);

  Objective& objective() { return *objective_; }

  // Null where the loss is not scaled.
  LossScale* loss_scale() { return loss_scale_.has_value() ? &*loss_scale_ : nullptr; }
  // Of `steps`, those that changed the model.
  uint64_t Updates(uint64_t steps) const;

  // Collective. Gives every rank all that the optimizer remembers, until the next step; the
  // communicators' errors.
  absl::Status GatherOptimizerStates();

  // Of one step.
  uint64_t collectives() const {
    return exchange_->operations() + (guard_.has_value() ? 1 : 0) + (sharded_ != nullptr ? 1 : 0);
  }
  uint64_t collective_bytes() const { return exchange_->bytes(); }

 private:
  TrainingStep(const StepParts& parts, const data::DatasetInfo& dataset);

  // Forward and backward of one micro-batch.
  absl::Status Compute(const data::Batch& part, uint64_t step, uint64_t global_rows, bool last);
  // Collective. Waits for the sums.
  absl::Status FinishExchange(StepTimes& times);
  // Collective where the loss is scaled. kExitDiverged where it is not and is no finite number.
  absl::StatusOr<bool> ShouldSkip(uint64_t step, double loss, StepTimes& times);
  // Collective where it is sharded.
  absl::Status Update(uint64_t step, StepOutcome& outcome, StepTimes& times);
  // kExitDiverged.
  absl::Status AdjustScale(uint64_t step, const StepOutcome& outcome);
  absl::Duration KernelTime() const;

  const StepParts parts_;
  const uint32_t micro_batches_;
  data::InputWriter input_;
  CommunicatorReducer reducer_;
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<GradientExchange> exchange_;
  std::unique_ptr<ShardedUpdate> sharded_;  // null where each rank updates everything
  // Both or none.
  std::optional<LossScale> loss_scale_;
  std::optional<OverflowGuard> guard_;
  // Since Create, in kernels that nobody else counts.
  absl::Duration own_kernel_time_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINING_STEP_H_
