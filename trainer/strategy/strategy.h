// How ranks divide a training: what the training loop and the rank know of a strategy.
//
// A strategy is set up in two phases, because the ranks join a generation in between:
//
//   StrategySetup   before the rank knows its peers: checks the spec and compiles what it can
//   Strategy        of connected ranks: owns the plans, the optimizer and the state of a training,
//                   and does its steps
//
// Each strategy has a folder below; docs/design/strategy.md explains how to add one.
#ifndef MUSTER_TRAINER_STRATEGY_STRATEGY_H_
#define MUSTER_TRAINER_STRATEGY_STRATEGY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/batch.h"
#include "trainer/data/image_dataset.h"
#include "trainer/data/transform.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/plan.h"
#include "trainer/optim/schedule.h"
#include "trainer/precision/loss_scale.h"
#include "trainer/precision/training_precision.h"
#include "trainer/strategy/evaluate.h"
#include "trainer/strategy/process_groups.h"
#include "trainer/strategy/step_statistics.h"

namespace muster::train {

// Result of one step, the same on all ranks. Means are over the global batch, before the update.
struct StepResult {
  uint64_t step = 0;  // counted from 0
  double loss = 0;
  double accuracy = 0;
  double learning_rate = 0;
  std::optional<double> gradient_norm;  // where the optimizer clips
  // The loss or a gradient overflowed on some rank: there was no update. Only with a loss scale;
  // the loss may then be no finite number.
  bool skipped = false;
};

// How a strategy divides global batches.
struct BatchDivision {
  uint32_t shares = 1;         // of a global batch, each for one replica of the model
  uint32_t micro_batches = 1;  // of one pass of a replica, executed one after the other
};

// A share of each global batch: the loader's part `index` of `count`.
struct BatchShare {
  uint32_t index = 0;
  uint32_t count = 1;
  bool labels_only = false;  // this rank reads no images
};

// The whole model's tensors, as checkpoint files hold them.
struct ModelTensors {
  std::vector<Tensor> model;
  std::vector<Tensor> optimizer;
  std::vector<Tensor> average;  // empty without a moving average
};

// What a checkpoint holds of the state. The paths are those of the rank that reads it.
struct CheckpointFiles {
  std::string model;
  std::string optimizer;
  std::string average;  // empty: it has none
  std::optional<LossScaleState> loss_scale;
};

// A strategy of connected ranks. For the training thread of one generation. Methods marked
// collective are called by all ranks alike. Errors: the communicators', the device's, and what the
// methods name.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // The device of the loader's batches.
  virtual kernels::Device& device() const = 0;
  virtual BatchShare batch_share() const = 0;
  virtual const TrainingPrecision& precision() const = 0;

  // Collective, once, before the first step: initial values as the seed gives them, or train's
  // init_from (kExitNoInput as exit code where it cannot be read).
  virtual absl::Status InitializeState() = 0;
  // Collective, in place of InitializeState: the state that rank `root` reads from `files`, which
  // are empty elsewhere.
  virtual absl::Status RestoreState(const CheckpointFiles& files, uint32_t root) = 0;
  // Collective, between steps whose results were polled: after `steps` steps. Whole on rank 0;
  // elsewhere without meaning.
  virtual absl::StatusOr<ModelTensors> GatherState(uint64_t steps) = 0;

  // Collective: step number `step`, counted from 0, one after the other. A device may be behind:
  // the step is queued, and its result is polled later. Adds to times.exposed_communication and
  // times.kernels. The update runs on all ranks or, after an error, on none that could report it.
  // FAILED_PRECONDITION where too many results were not polled.
  virtual absl::Status Step(const data::Batch& batch, uint64_t step, StepTimes& times) = 0;
  // Result of the next step, in order; absent where no step is pending, or its result is not known
  // yet and neither `wait` nor the number of pending steps asks for waiting. kExitDiverged (as exit
  // code) where the loss is no finite number, or with a loss scale where no scale helps: no later
  // step changed anything.
  virtual absl::StatusOr<std::optional<StepResult>> PollStepResult(bool wait) = 0;
  // After the last result that was polled; null where the loss is not scaled.
  virtual const LossScaleState* loss_scale() const = 0;
  // Collective operations of one step, and the bytes of gradients that they reduce.
  virtual uint64_t collectives_per_step() const = 0;
  virtual uint64_t collective_bytes_per_step() const = 0;

  // Collective, between steps: with the moving average where there is one, and rank 0's running
  // statistics.
  virtual absl::StatusOr<Evaluation> Evaluate(const data::ImageDataset& dataset,
                                              const data::TransformOptions& transform) = 0;
  // Collective, at the end. Adds digest and number of the parameters, and what devices and stages
  // hold and did: on rank 0 those of all ranks.
  virtual absl::Status Summarize(v1::TrainSummary& summary) = 0;
};

// What a connected strategy works with; all of it outlives the strategy.
struct StrategyContext {
  const v1::TrainSpec* spec = nullptr;
  const Schedule* schedule = nullptr;
  const data::DatasetInfo* dataset = nullptr;  // of the training split
  const ProcessGroups* groups = nullptr;
  TrainingPrecision precision;
  uint32_t max_samples = 0;       // CompileOptions::max_batch
  bool canonical_layout = false;  // ranks lay their arrays out differently
  std::string node_name;          // for the summary
  // Called for a phase of Connect that takes long, with its name.
  std::function<void(const std::string& phase)> report_phase = [](const std::string&) {};
};

// What a strategy is set up from.
struct ModelSetup {
  const v1::TrainSpec* spec = nullptr;  // outlives the setup
  nn::Graph graph;
  nn::CompileOptions compiling;
  TrainingPrecision precision;
  uint32_t views = 1;  // of each sample, as the objective compares them
  // Where the rank computes: on the first, but for strategies that drive several.
  std::vector<kernels::Device*> devices;
};

// A strategy before the ranks are connected.
class StrategySetup {
 public:
  virtual ~StrategySetup() = default;
  // Digest of how the rank lays out parameters: JoinInfo.layout_digest.
  virtual std::string layout_digest() const = 0;
  // Collective, once. Errors carry an exit code where they are not the communicators'.
  virtual absl::StatusOr<std::unique_ptr<Strategy>> Connect(const StrategyContext& context) = 0;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_STRATEGY_H_
