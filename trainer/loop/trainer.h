// Training loop of one rank: batches, steps, checkpoints, evaluations, progress and the summary.
// The strategy (trainer/strategy) implements the step and distributes the model.
//
// A global batch of B samples is divided into n shares; share r has samples floor(rB/n) to
// floor((r+1)B/n), exclusive. Each rank's loss gradient is divided by the actual number of samples
// of the global batch, and the update runs only after all gradients have arrived: either all ranks
// perform a step or none.
#ifndef MUSTER_TRAINER_LOOP_TRAINER_H_
#define MUSTER_TRAINER_LOOP_TRAINER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/time.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/data/loader.h"
#include "trainer/loop/progress.h"
#include "trainer/loop/training_log.h"
#include "trainer/loop/training_setup.h"
#include "trainer/strategy/process_groups.h"
#include "trainer/strategy/step_statistics.h"
#include "trainer/strategy/strategy.h"
#include "trainer/tensorboard/tensorboard.h"

namespace muster::train {

// Checkpoint to resume from, and the rank that reads it.
struct ResumePoint {
  uint32_t rank = 0;
  uint64_t step = 0;
  bool own = true;  // this job wrote it; otherwise it continues another job
};

struct TrainerOptions {
  std::string job_id;
  uint64_t generation = 1;
  bool canonical_layout = false;  // ranks use different parameter layouts
  std::optional<ResumePoint> resume;
  // Directory for this rank's checkpoints; absent: no checkpoints. Only rank 0 writes.
  std::optional<CheckpointDirectory> checkpoints;
  // Directory of the checkpoint to resume from; absent: `checkpoints`.
  std::optional<CheckpointDirectory> resume_directory;
  // Called on rank 0 with the step of each checkpoint that it has written.
  std::function<void(uint64_t step)> on_checkpoint = [](uint64_t) {};
  // Directory for rank 0's TensorBoard event files; empty: none are written.
  std::string tensorboard_directory;
  std::string node_name;  // for the summary
  ProgressSink progress;
};

// One training in one generation. Used by one thread.
class Trainer {
 public:
  // `groups` outlive the trainer.
  Trainer(std::unique_ptr<TrainingSetup> setup, const ProcessGroups* groups,
          TrainerOptions options);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Collective; called once. Trains from the resume point, or from the initial state, to the end,
  // evaluates and returns the summary. Errors: the communicator's; exit code payload
  // kExitCannotCreate for a checkpoint that cannot be written, and kExitNoInput for an init_from
  // that cannot be read; ABORTED from the checkpoint fence.
  absl::StatusOr<v1::TrainSummary> Run();

  // Number of completed steps, for a failure report. Valid after Run.
  uint64_t step() const { return step_; }

 private:
  bool is_first() const { return world_.rank() == 0; }
  absl::Status CreateStrategy();
  absl::Status LoadInitialState();
  // Files of the checkpoint to resume from, on the rank that reads them; empty on other ranks.
  absl::StatusOr<CheckpointFiles> FindCheckpoint();
  absl::Status TrainAll();
  data::LoaderOptions LoaderOptionsFor(const kernels::DeviceMemory& resident) const;
  // Loads the next batch, runs its step and polls available results.
  absl::Status TrainStep(data::Loader& loader);
  // Processes available step results; with `all`, waits for all of them. Exit code kExitDiverged.
  absl::Status PollStepResults(bool all);
  // Writes the results polled last to TensorBoard.
  absl::Status WriteScalars();
  // Waits until the results of all steps so far have been polled.
  absl::Status Settle();
  absl::Status EvaluateModel();
  void RecordEvaluation(SteadyTime begin);
  absl::Status SaveCheckpoint();
  absl::StatusOr<v1::TrainSummary> Summarize();
  double Epochs() const;  // completed, including earlier generations
  void SetPhase(const std::string& phase);
  void CountCollectives(uint64_t operations, uint64_t bytes);

  const std::unique_ptr<TrainingSetup> setup_;
  const v1::TrainSpec& spec_;
  const ProcessGroups& groups_;
  collectives::Communicator& world_;
  const TrainerOptions options_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;  // on rank 0, if enabled
  ProgressReporter progress_;
  TrainingLog log_;
  StepStatistics statistics_;

  uint64_t step_ = 0;        // completed, including earlier generations
  uint64_t first_step_ = 0;  // first step of this generation
  uint64_t saved_step_;      // step of the job's newest checkpoint; kNever if none
  absl::Duration stall_;     // time waited for the loader in this generation
  double loss_ = 0;
  std::vector<StepResult> results_;  // results polled last
  Evaluation evaluation_;
  std::vector<float> losses_;
  std::vector<float> step_ends_;  // end times of the same steps, in seconds
  // Times of this generation.
  SteadyTime training_start_;    // start of the first step
  absl::Duration not_training_;  // evaluations and the final checkpoint
  absl::Duration last_evaluation_;
  std::vector<v1::Evaluation> evaluations_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_TRAINER_H_
