// What strategies have in common: an optimizer and the state that training changes, reading and
// writing them, evaluation and summary. The defaults are those of strategies whose ranks all have
// the whole model.
#ifndef MUSTER_TRAINER_STRATEGY_STRATEGY_BASE_H_
#define MUSTER_TRAINER_STRATEGY_STRATEGY_BASE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/data/input_writer.h"
#include "trainer/objective/objective.h"
#include "trainer/strategy/parameter_update.h"
#include "trainer/strategy/step_controller.h"
#include "trainer/strategy/strategy.h"

namespace muster::train {

// For the parameters of `plan`. The errors of Optimizer::Create.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(const ModelSetup& setup,
                                                           const nn::Plan& plan);

// kExitNoDevice as exit code for the error of a device that lacks a library; a device reports it
// where it is first asked for kernels.
absl::Status WithDeviceExitCode(const absl::Status& status);

class StrategyBase : public Strategy {
 public:
  kernels::Device& device() const override { return plan_.device(); }
  BatchShare batch_share() const override;
  const TrainingPrecision& precision() const override { return precision_; }

  absl::Status InitializeState() override;
  absl::Status RestoreState(const CheckpointFiles& files, uint32_t root) override;
  absl::StatusOr<ModelTensors> GatherState(uint64_t steps) override;

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
  // `replicas`: the ranks that have the same parameters. `plan`: what the arrays belong to; they
  // are bound to `execution`, which is the plan where it is null. All outlive the strategy's
  // methods.
  StrategyBase(const StrategyContext& context, collectives::Communicator* replicas, nn::Plan* plan,
               std::unique_ptr<Optimizer> optimizer, nn::Execution* execution = nullptr);

  const v1::TrainSpec& spec() const { return *context_.spec; }
  collectives::Communicator& world() const { return *context_.groups->world; }
  // Parts of what a step works on; the rest is its own.
  StepParts PartsOfStep();
  // Collective. The loss of one batch in evaluation, which `input` writes.
  virtual absl::StatusOr<nn::LossResult> EvaluateBatch(const data::Batch& batch,
                                                       uint64_t global_samples,
                                                       data::InputWriter& input) = 0;
  // Batches that one step's batch norm sees, one after the other.
  virtual uint32_t batches_per_step() const { return controller_->accumulation_steps(); }

  // Collective. Reads initial values from the file at `path`, on all ranks or on rank 0.
  virtual absl::Status ReadInitialModel(const std::string& path,
                                        const std::vector<std::string>& excluded);
  // Collective. Reads the files of rank `root`, there or on all ranks.
  virtual absl::Status ReadCheckpoint(const CheckpointFiles& files, uint32_t root);
  // Collective. Gives all ranks what `root` read or initialised.
  virtual absl::Status BroadcastState(uint32_t root, bool resuming);
  // Collective over the ranks that have a part of one replica of the model: all tensors of it on
  // the first of them, given each one's own.
  virtual absl::StatusOr<std::vector<Tensor>> GatherTensors(std::vector<Tensor> own) { return own; }

  // How long a step computed, for the summary.
  void RecordBusy(absl::Duration busy) { busy_.Add({busy}); }
  // What this rank's devices hold and did. The default is of a rank with one device.
  virtual void DescribeRank(v1::TrainSummary& own) const;
  // On rank 0: adds to the summary what the ranks described, but for their devices.
  virtual void MergeRanks(const std::vector<v1::TrainSummary>& ranks, v1::TrainSummary& summary) {}
  // An entry of DescribeRank.
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

 private:
  absl::Status FinishState(uint32_t root, bool resuming);
  absl::Status SummarizeWeights(v1::TrainSummary& summary);

  DurationStatistics busy_{1};
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_STRATEGY_BASE_H_
