// Common base of the strategies: owns the optimizer and the training state, and implements reading
// and writing them, evaluation and the summary. The defaults suit strategies whose ranks all have
// the whole model.
#ifndef MUSTER_TRAINER_STRATEGY_STRATEGY_BASE_H_
#define MUSTER_TRAINER_STRATEGY_STRATEGY_BASE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/data/input_writer.h"
#include "trainer/objective/objective.h"
#include "trainer/strategy/parameter_update.h"
#include "trainer/strategy/step_controller.h"
#include "trainer/strategy/strategy.h"

namespace muster::train {

// Creates the optimizer for the parameters of `plan`. Returns Optimizer::Create's errors.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(const ModelSetup& setup,
                                                           const nn::Plan& plan);

class StrategyBase : public Strategy {
 public:
  kernels::Device& device() const override { return plan_.device(); }
  BatchShare batch_share() const override;
  const TrainingPrecision& precision() const override { return precision_; }

  absl::Status InitializeState() override;
  absl::Status RestoreState(const CheckpointFiles& files, uint32_t root) override;
  absl::Status SnapshotState(uint64_t steps, StateSnapshot& snapshot) override;
  CheckpointPart checkpoint_part() const override;
  absl::Status SnapshotPart(uint64_t steps, StateSnapshot& snapshot) override {
    return SnapshotState(steps, snapshot);
  }

  bool keeps_complete_state() const override { return keeps_complete_state_; }

  absl::StatusOr<std::optional<StepResult>> PollStepResult(bool wait) override {
    return controller_->PollStepResult(wait);
  }
  const LossScaleState* loss_scale() const override { return controller_->loss_scale(); }
  uint64_t collectives_per_step() const override {
    return path_.reducer->operations() + path_.update->operations();
  }
  uint64_t collective_bytes_per_step() const override { return path_.reducer->bytes(); }

  absl::StatusOr<Evaluation> Evaluate(const data::ImageDataset& dataset,
                                      const data::TransformOptions& transform) override;
  absl::Status Summarize(v1::TrainSummary& summary) override;

 protected:
  // `replicas`: group of the ranks that have the same parameters. `plan`: describes the arrays of
  // `state`. Both outlive the calls of the strategy's methods.
  StrategyBase(const StrategyContext& context, collectives::Communicator* replicas, nn::Plan* plan,
               std::unique_ptr<Optimizer> optimizer, ModelState state);

  const v1::TrainSpec& spec() const { return *context_.spec; }
  collectives::Communicator& world() const { return *context_.groups->world; }
  // Fills the members of StepParts that the base class owns; the caller sets the others.
  StepParts PartsOfStep();
  // Collective. Loss of one evaluation batch, which is written by `input`.
  virtual absl::StatusOr<nn::LossResult> EvaluateBatch(const data::Batch& batch,
                                                       uint64_t global_samples,
                                                       data::InputWriter& input) = 0;
  // Collective. Sums an evaluation's losses, one per slice of batch_share(), over all ranks.
  virtual absl::StatusOr<nn::LossResult> SumLosses(absl::Span<const nn::LossResult> own) {
    return SumOverRanks(own, world());
  }
  // Number of batches that batch norm processes per step.
  virtual uint32_t batches_per_step() const { return controller_->accumulation_steps(); }

  // Collective. Reads initial values from the file at `path`, either on all ranks or on rank 0.
  virtual absl::Status ReadInitialModel(const std::string& path,
                                        const std::vector<std::string>& excluded);
  // Collective. Reads the files of rank `root`, either on that rank or on all ranks.
  virtual absl::Status ReadCheckpoint(const CheckpointFiles& files, uint32_t root);
  // Collective. Reads the parts of a state in memory: the arrays of PartRange, all to rank `root`.
  absl::Status GatherParts(const CheckpointFiles& files, uint32_t root);
  // Reads a part's arrays, which are in the device's memory, on the rank that has them.
  absl::Status ReadArrays(const CheckpointFiles& files, const MemoryPart& part,
                          const std::vector<StateArray>& arrays);
  // Elements of the flat arrays that are part `part` of `parts`; the first part also has the
  // running statistics.
  TensorRange PartRange(uint32_t part, uint32_t parts) const;
  // Collective. Broadcasts the state that `root` read or initialized.
  virtual absl::Status BroadcastState(uint32_t root, bool resuming);
  // Collective. Copies this rank's range of its replica's parameters and states, and the first
  // replica's running statistics. `ranges`: of the ranks that have the same parameters.
  absl::Status SnapshotRange(uint64_t steps, const CheckpointRanges& ranges,
                             StateSnapshot& snapshot);
  // Batches that batch norm has processed after `steps` steps. As in PyTorch, each slice of a batch
  // counts.
  uint64_t TrainedBatches(uint64_t steps) const {
    return controller_->updates(steps) * batches_per_step();
  }
  // Collective over the ranks that form one model replica. Takes each rank's own tensors and
  // returns all tensors of the replica on its first rank.
  virtual absl::StatusOr<std::vector<Tensor>> GatherTensors(std::vector<Tensor> own) { return own; }

  // Called at the beginning and at the end of a step: running statistics change within it.
  void BeginState(uint64_t global_samples);
  void EndState() { in_step_ = false; }
  // After a collective has failed: completes the state of the last step. Returns it without arrays.
  absl::StatusOr<WholeState> CompleteUpdate();
  // Adds the arrays, copied from the device if they are not in host memory.
  absl::Status AddArrays(const std::vector<StateArray>& arrays, WholeState& state);

  // Records a step's compute time for the summary.
  void RecordBusy(absl::Duration busy) { busy_.Add({busy}); }
  // Adds memory and compute time of this rank's devices. The default is for a rank with one device.
  virtual void DescribeRank(v1::TrainSummary& own) const;
  // Called on rank 0: merges the ranks' descriptions, except for their devices, into the summary.
  virtual void MergeRanks(const std::vector<v1::TrainSummary>& ranks, v1::TrainSummary& summary) {}
  // Adds one device to the description of this rank.
  v1::DeviceUse& AddDevice(v1::TrainSummary& own, const nn::Plan& plan, absl::Duration busy) const;

  const StrategyContext context_;
  const TrainingPrecision precision_;
  collectives::Communicator& replicas_;
  nn::Plan& plan_;
  const std::unique_ptr<Optimizer> optimizer_;
  ModelState state_;
  std::unique_ptr<StepController> controller_;
  std::unique_ptr<Objective> objective_;
  GradientPath path_;
  // Called before the first step, when path_ exists: decides whether this rank can leave its state
  // to the next generation. RESOURCE_EXHAUSTED.
  absl::Status KeepState();

 private:
  absl::Status FinishState(uint32_t root, bool resuming);
  // Waits, for a bounded time, until the device has made all calls.
  absl::Status DrainDevice();
  absl::Status SummarizeWeights(v1::TrainSummary& summary);

  DurationStatistics busy_{1};
  bool keeps_complete_state_ = false;
  bool in_step_ = false;       // a step has begun that is not completed
  uint64_t step_samples_ = 0;  // global samples of that step
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_STRATEGY_BASE_H_
