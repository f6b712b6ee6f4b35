// Interface between the training loop and a parallel training strategy.
//
// A strategy is created in two phases, because the ranks join a generation in between:
//
//   StrategySetup   before the rank knows its peers: checks the spec and compiles what it can
//   Strategy        after the ranks are connected: owns the plans, the optimizer and the training
//                   state, and runs the steps
//
// Each strategy has its own folder; docs/design/strategy.md explains how to add one.
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
#include "absl/types/span.h"
#include "kernels/device.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/checkpoint/memory_checkpoint.h"
#include "trainer/data/batch.h"
#include "trainer/data/image_dataset.h"
#include "trainer/data/transform.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/plan.h"
#include "trainer/optim/schedule.h"
#include "trainer/optim/state_snapshot.h"
#include "trainer/precision/loss_scale.h"
#include "trainer/precision/training_precision.h"
#include "trainer/strategy/evaluate.h"
#include "trainer/strategy/process_groups.h"
#include "trainer/strategy/step_statistics.h"

namespace muster::train {

// Result of one step, the same on all ranks. Loss and accuracy are means over the global batch,
// computed before the update.
struct StepResult {
  uint64_t step = 0;  // counted from 0
  double loss = 0;
  double accuracy = 0;
  double learning_rate = 0;
  std::optional<double> gradient_norm;  // only if the optimizer clips
  // The update was skipped because the loss or a gradient overflowed on some rank. Only with loss
  // scaling; the loss may then be infinite or NaN.
  bool skipped = false;
  // Not OK, with exit code kExitDiverged, if the loss is infinite or NaN or, with loss scaling, if
  // reducing the scale no longer helps; no later step has changed the state then.
  absl::Status diverged;
};

// How a strategy divides global batches.
struct BatchDivision {
  uint32_t shares = 1;         // slices of a global batch, one per model replica
  uint32_t micro_batches = 1;  // run one after the other in a replica's pass
};

// This rank's share of each global batch: `slices` slices of `count` in the data loader, from slice
// `index` on.
struct BatchShare {
  uint32_t index = 0;
  uint32_t count = 1;
  uint32_t slices = 1;
  bool labels_only = false;  // this rank loads labels but no images
};

// This rank's part of a checkpoint that several ranks write.
struct CheckpointPart {
  uint32_t count = 1;             // parts; 1: rank 0 writes the whole checkpoint
  std::optional<uint32_t> index;  // part 0 is rank 0's; absent: this rank writes nothing
};

// Files and values of a checkpoint. Paths are local to the rank that reads them.
struct CheckpointFiles {
  std::string model;
  std::string optimizer;
  std::string average;  // empty if the checkpoint has none
  std::optional<LossScaleState> loss_scale;
  // Set instead of the paths for a state in memory, on all ranks: its parts, which their readers
  // read from `memory`. The first reader is `root`.
  const MemoryCheckpoints* memory = nullptr;
  std::vector<MemoryPart> parts;
};

// State of a model replica in host memory, or a part of it.
struct WholeState {
  std::vector<StateArray> arrays;
  std::vector<std::string> files;  // arrays may refer to them
  uint32_t part = 0;               // of `parts`
  uint32_t parts = 1;
  // The step that failed on this rank counts as completed, because another rank's update had begun.
  bool after_failed_step = false;
  // Steps that Step has queued and that the device has not completed.
  uint64_t unfinished_steps = 0;
  // Results of the completed steps that were not polled.
  std::vector<StepResult> results;
};

// A strategy whose ranks are connected. All methods are called from the training thread of one
// generation; every rank must call the methods marked collective, in the same order. Methods return
// the communicators' and the device's errors in addition to those they document.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // Device that the loader prepares batches for.
  virtual kernels::Device& device() const = 0;
  // All devices of this rank.
  virtual std::vector<kernels::Device*> devices() const { return {&device()}; }
  virtual BatchShare batch_share() const = 0;
  virtual const TrainingPrecision& precision() const = 0;

  // Collective; called once, before the first step. Initializes the state from the seed, or from
  // train.init_from (exit code kExitNoInput if the file cannot be read).
  virtual absl::Status InitializeState() = 0;
  // Collective; called instead of InitializeState. Restores the state from `files`, which rank
  // `root` reads; `files` is empty on other ranks.
  virtual absl::Status RestoreState(const CheckpointFiles& files, uint32_t root) = 0;
  // Collective; called between steps, after all results were polled. Copies the state after `steps`
  // steps: complete on rank 0, unspecified on other ranks. The snapshot must not outlive the
  // strategy.
  virtual absl::Status SnapshotState(uint64_t steps, StateSnapshot& snapshot) = 0;
  // How the ranks divide a checkpoint if they can write to the same directory.
  virtual CheckpointPart checkpoint_part() const = 0;
  // Collective; called like SnapshotState, instead of it. Copies the tensors of this rank's part,
  // each tensor in one part, and none if it has no part. No rank gathers the whole state.
  virtual absl::Status SnapshotPart(uint64_t steps, StateSnapshot& snapshot) = 0;

  // Whether this rank can have the whole state, or a part of it that other ranks complete, once a
  // collective has failed. A call that waits for peers then fails soon.
  virtual bool keeps_complete_state() const { return false; }
  // That state, or why this rank does not have it. Waits only for a bounded time for the device.
  // The last call.
  virtual absl::StatusOr<WholeState> CompleteState() {
    return absl::UnimplementedError("the strategy does not keep it on this device");
  }

  // Collective. Runs step number `step`; steps are consecutive and counted from 0. On an
  // asynchronous device the step is only queued and its result is polled later. Adds to
  // times.exposed_communication and times.kernels. Either all ranks update or, after an error, none
  // that could report it does. FAILED_PRECONDITION if too many results have not been polled.
  virtual absl::Status Step(const data::Batch& batch, uint64_t step, StepTimes& times) = 0;
  // Returns the result of the next step, in order. Empty if no step is pending, or if the result is
  // not available yet, unless `wait` is set or too many steps are pending.
  virtual absl::StatusOr<std::optional<StepResult>> PollStepResult(bool wait) = 0;
  // Loss scale after the last polled result; null without loss scaling.
  virtual const LossScaleState* loss_scale() const = 0;
  // Collective operations per step, and bytes of gradients that they reduce.
  virtual uint64_t collectives_per_step() const = 0;
  virtual uint64_t collective_bytes_per_step() const = 0;

  // Collective; called between steps. Evaluates the moving average of the weights if there is one,
  // otherwise the weights, with the running statistics of rank 0. CANCELLED, on all ranks, if one
  // of them was asked to stop.
  virtual absl::StatusOr<Evaluation> Evaluate(const data::ImageDataset& dataset,
                                              const data::TransformOptions& transform) = 0;
  // Collective; called once at the end. Adds the parameters' digest and count and the memory and
  // compute times of devices and stages; on rank 0 those of all ranks.
  virtual absl::Status Summarize(v1::TrainSummary& summary) = 0;
};

// Inputs of a connected strategy. Everything pointed to outlives the strategy.
struct StrategyContext {
  const v1::TrainSpec* spec = nullptr;
  const Schedule* schedule = nullptr;
  const data::DatasetInfo* dataset = nullptr;  // properties of the training split
  const ProcessGroups* groups = nullptr;
  TrainingPrecision precision;
  uint32_t max_samples = 0;       // CompileOptions::max_batch
  uint32_t shares = 1;            // BatchDivision::shares
  bool canonical_layout = false;  // ranks use different parameter layouts
  std::string node_name;          // for the summary
  // Called with the name of each long-running phase of Connect.
  std::function<void(const std::string& phase)> report_phase = [](const std::string&) {};
  StopRequested stop_requested = [] { return false; };
  EvaluationProgress evaluation_progress = [](uint64_t) {};
};

// Inputs of a strategy's setup.
struct ModelSetup {
  const v1::TrainSpec* spec = nullptr;  // outlives the setup
  nn::Graph graph;
  nn::CompileOptions compiling;
  TrainingPrecision precision;
  uint32_t views = 1;  // augmented views of each sample
  // Devices of this rank. Only strategies that drive several devices use more than the first.
  std::vector<kernels::Device*> devices;
};

// A strategy whose ranks are not connected yet.
class StrategySetup {
 public:
  virtual ~StrategySetup() = default;
  // Digest of the rank's parameter layout (JoinInfo.layout_digest).
  virtual std::string layout_digest() const = 0;
  // Collective; called once. Errors other than the communicators' carry an exit code.
  virtual absl::StatusOr<std::unique_ptr<Strategy>> Connect(const StrategyContext& context) = 0;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_STRATEGY_H_
