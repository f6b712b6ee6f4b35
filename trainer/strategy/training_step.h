// One step of one rank: its rows of the global batch forward and backward, the gradients summed
// over the ranks while backward still runs, the update; or, where ranks share memory and the update
// allows it, sum and update in one pass after backward; or, where each rank keeps the optimizer's
// states of its share of the parameters alone, the sums and the update of that share, which
// everybody then gets.
//
// A device may be behind: a step is queued on it, and what became of it is asked for later. Where
// the device records calls, forward, loss and backward are recorded once for each number of rows,
// and the update once. Where devices reach each other the sums over the ranks are recorded too, and
// the process waits for nothing but outcomes; a world of one has none.
//
// In a pipeline the plan is a stage of the model, whose replicas are the ranks that sum gradients;
// the loss, and the gradients' norm, then come from all stages.
#ifndef MUSTER_TRAINER_STRATEGY_TRAINING_STEP_H_
#define MUSTER_TRAINER_STRATEGY_TRAINING_STEP_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/data/batch.h"
#include "trainer/data/input_writer.h"
#include "trainer/graph/plan.h"
#include "trainer/loop/step_statistics.h"
#include "trainer/objective/objective.h"
#include "trainer/objective/statistics_reducer.h"
#include "trainer/optim/model_state.h"
#include "trainer/optim/optimizer.h"
#include "trainer/optim/schedule.h"
#include "trainer/optim/update_controller.h"
#include "trainer/precision/loss_scale.h"
#include "trainer/precision/non_finite_gradient_guard.h"
#include "trainer/precision/training_precision.h"
#include "trainer/strategy/device_bucket_reducer.h"
#include "trainer/strategy/fused_shared_memory_update.h"
#include "trainer/strategy/host_bucket_reducer.h"
#include "trainer/strategy/shares.h"
#include "trainer/strategy/step_graphs.h"
#include "trainer/strategy/zero1/sharded_parameters.h"

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
struct StepResult {
  uint64_t step = 0;  // counted from 0
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
  // Collective. Binds the plan's gradients. Where the spec shards the optimizer, it keeps this
  // rank's share from now on. The communicators' errors; FAILED_PRECONDITION where the optimizer
  // cannot be sharded.
  static absl::StatusOr<std::unique_ptr<TrainingStep>> Create(const StepParts& parts,
                                                              const data::DatasetInfo& dataset);

  // Collective; step number `step`, counted from 0, one after the other. Adds to
  // times.exposed_communication and times.kernels. The update runs on all ranks or, after an error,
  // on none that could tell it to others: the communicators' errors, the device's.
  // FAILED_PRECONDITION where too many outcomes were not taken.
  absl::Status Run(const data::Batch& batch, uint64_t step, StepTimes& times);

  // The outcome of the next step that was run, in order; absent where there is none, or it is not
  // known yet and neither `wait` nor the number of such steps asks for waiting. On a device whose
  // calls have happened when they return, it is known at once. kExitDiverged where the loss is no
  // finite number, or with a loss scale where no scale helps: no later step changed anything. The
  // device's errors.
  absl::StatusOr<std::optional<StepResult>> TakeOutcome(bool wait);

  Objective& objective() { return *objective_; }

  // After the last outcome that was taken; null where the loss is not scaled.
  const LossScaleState* loss_scale() const {
    return loss_scale_.has_value() ? &*loss_scale_ : nullptr;
  }
  // As a checkpoint has it; only where the loss is scaled.
  void RestoreLossScale(const LossScaleState& state);
  // Of `steps`, whose outcomes were taken, those that changed the model.
  uint64_t Updates(uint64_t steps) const;

  // Before the first step, once a checkpoint was read into an optimizer that kept all for it.
  void KeepOwnOptimizerStates();
  // Collective. All that the optimizer remembers, for a checkpoint of rank 0: valid until the next
  // step. Where each rank keeps a share, rank 0 alone gets whole arrays, besides its share: its
  // memory is at its peak while they live. The communicators' errors.
  class WholeStates {
   public:
    explicit WholeStates(absl::Span<const OptimizerState> states) : states_(states) {}
    explicit WholeStates(std::vector<OptimizerState> gathered)
        : gathered_(std::move(gathered)), states_(gathered_) {}
    absl::Span<const OptimizerState> states() const { return states_; }

   private:
    std::vector<OptimizerState> gathered_;
    absl::Span<const OptimizerState> states_;
  };
  absl::StatusOr<WholeStates> GatherOptimizerStates();

  // Of one step.
  uint64_t collectives() const;
  uint64_t collective_bytes() const {
    return on_devices_ != nullptr ? on_devices_->bytes() : exchange_->bytes();
  }

 private:
  TrainingStep(const StepParts& parts, const data::DatasetInfo& dataset);

  // Micro-batch `index`: its data, forward, backward.
  absl::Status Compute(const data::Batch& part, uint32_t index, uint64_t step,
                       uint64_t global_rows);
  // The part of it that is the same in every step.
  absl::Status Pass(uint32_t index, uint32_t rows, uint64_t global_rows);
  absl::Status CreateExchange();
  float* gradients() const {
    return on_devices_ != nullptr ? on_devices_->gradients() : exchange_->gradients();
  }
  // The groups' own, without asking a peer.
  absl::Status GroupStatus() const;
  absl::Status AwaitNextOutcome();
  // Of all micro-batches of this rank; waits.
  nn::LossResult OwnLoss() const;
  // Collective, by the processes.
  absl::StatusOr<nn::LossResult> SumOverRanks(const nn::LossResult& loss);
  // Collective. Waits for the sums; agrees on whether they overflowed.
  absl::Status Exchange(StepTimes& times);
  // Collective where it is sharded.
  absl::Status Update(StepTimes& times);
  absl::Status DivergedAt(const StepResult& outcome) const;
  // The elements [begin, end).
  void Optimize(size_t begin, size_t end);
  // What of the gradients this rank looks at and updates by.
  Shares::Share OwnShare() const;
  // Collective. For clipping, where gradients are scattered or each rank has those of a stage.
  absl::Status SumSquares();
  // By kStepPartNames, since Create; exchange and update apart.
  using StepPartTimes = std::array<absl::Duration, kStepPartNames.size()>;
  StepPartTimes SpentInParts() const;
  absl::Duration KernelTime() const;

  const StepParts parts_;
  kernels::Device& device_;
  const uint32_t micro_batches_;
  data::InputWriter input_;
  CommunicatorReducer reducer_;
  std::unique_ptr<Objective> objective_;
  // One of them: by the process, or by the devices.
  std::unique_ptr<HostBucketReducer> exchange_;
  std::unique_ptr<DeviceBucketReducer> on_devices_;
  // One of them, or none where each rank updates everything.
  std::unique_ptr<FusedSharedMemoryUpdate> sharded_;
  std::unique_ptr<ShardedParameters> shares_;
  std::unique_ptr<UpdateController> control_;
  StepGraphs graphs_;
  bool records_ = false;  // passes are recorded: the process cannot exchange meanwhile
  // Both or none.
  std::optional<LossScaleState> loss_scale_;
  std::optional<NonFiniteGradientGuard> guard_;
  // Of steps whose outcomes were not taken, by step modulo their largest number.
  struct Queued {
    uint64_t step = 0;
    uint64_t global_rows = 0;
    double learning_rate = 0;
  };
  std::array<Queued, UpdateController::kStepsAhead> queued_;
  uint64_t next_outcome_ = 0;  // the step whose it is
  // Since Create, in kernels that nobody else counts.
  absl::Duration own_kernel_time_;
  absl::Duration loss_time_;  // likewise, for the objective
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_TRAINING_STEP_H_
