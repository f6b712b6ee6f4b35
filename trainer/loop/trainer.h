// The training loop of one rank: batches, steps, checkpoints, evaluations, progress and the
// summary. What a step does, and on which ranks the model is, are the strategy's
// (trainer/strategy).
//
// Of n shares of each global batch of B samples, share r takes the samples floor(rB/n) up to
// floor((r+1)B/n). Each rank's loss gradient is divided by the samples that the global batch really
// has, and the update runs only when all gradients arrived: a step is done by all ranks or by none.
#ifndef MUSTER_TRAINER_LOOP_TRAINER_H_
#define MUSTER_TRAINER_LOOP_TRAINER_H_

#include <cstdint>
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
#include "trainer/loop/training_setup.h"
#include "trainer/strategy/process_groups.h"
#include "trainer/strategy/step_statistics.h"
#include "trainer/strategy/strategy.h"
#include "trainer/tensorboard/tensorboard.h"

namespace muster::train {

// The rank that reads a checkpoint, and which one.
struct ResumePoint {
  uint32_t rank = 0;
  uint64_t step = 0;
};

struct TrainerOptions {
  std::string job_id;
  uint64_t generation = 1;
  bool canonical_layout = false;  // ranks lay their arrays out differently
  std::optional<ResumePoint> resume;
  // Where this rank reads and writes checkpoints; absent: nowhere. Rank 0 writes.
  std::optional<CheckpointDirectory> checkpoints;
  // Where rank 0 writes TensorBoard's event files; empty: nowhere.
  std::string tensorboard_directory;
  std::string node_name;  // for the summary
  ProgressSink progress;
};

// One training in one generation, on one thread.
class Trainer {
 public:
  // `groups` outlive the trainer.
  Trainer(std::unique_ptr<TrainingSetup> setup, const ProcessGroups* groups,
          TrainerOptions options);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Collective; once. Trains from the resume point, or from the spec's start, to the end;
  // evaluates; summarises. Errors: the communicator's; kExitCannotCreate (as exit code payload) for
  // a checkpoint that cannot be written, kExitNoInput for init_from that cannot be read; ABORTED
  // from a checkpoint fence.
  absl::StatusOr<v1::TrainSummary> Run();

  // Steps done, for a failure's report. After Run.
  uint64_t step() const { return step_; }

 private:
  bool is_first() const { return world_.rank() == 0; }
  absl::Status CreateStrategy();
  absl::Status LoadInitialState();
  // Of the step to resume from, on the rank that reads them; empty elsewhere.
  absl::StatusOr<CheckpointFiles> FindCheckpoint();
  absl::Status TrainAll();
  data::LoaderOptions LoaderOptionsFor(const kernels::DeviceMemory& resident) const;
  // The next batch, its step and the results that are known.
  absl::Status TrainStep(data::Loader& loader);
  // Of steps whose result is known, or of `all`; kExitDiverged.
  absl::Status PollStepResults(bool all);
  // Of those polled last, for TensorBoard.
  absl::Status WriteScalars();
  // Until the result of every step so far was polled.
  absl::Status Settle();
  absl::Status EvaluateModel();
  void RecordEvaluation(SteadyTime begin);
  absl::Status SaveCheckpoint();
  absl::StatusOr<v1::TrainSummary> Summarize();
  double Epochs() const;  // done in the training's whole life
  void SetPhase(const std::string& phase);
  void CountCollectives(uint64_t operations, uint64_t bytes);

  const std::unique_ptr<TrainingSetup> setup_;
  const v1::TrainSpec& spec_;
  const ProcessGroups& groups_;
  collectives::Communicator& world_;
  const TrainerOptions options_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;  // of rank 0, where asked for
  ProgressReporter progress_;
  StepStatistics statistics_;

  uint64_t step_ = 0;        // done in the training's whole life
  uint64_t first_step_ = 0;  // where this generation began
  uint64_t saved_step_;      // the newest checkpoint; none is kNever
  absl::Duration stall_;     // waited for the loader in this generation
  double loss_ = 0;
  std::vector<StepResult> results_;  // polled last
  Evaluation evaluation_;
  std::vector<float> losses_;
  std::vector<float> step_ends_;  // of the same steps, in seconds
  // Of this generation.
  SteadyTime training_start_;  // of the first step
  absl::Duration evaluating_;
  absl::Duration last_evaluation_;
  std::vector<v1::Evaluation> evaluations_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_TRAINER_H_
