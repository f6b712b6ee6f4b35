// The training loop of one rank: distributed data parallel over a communicator of all ranks.
//
// Rank r of W takes rows floor(rB/W) up to floor((r+1)B/W) of each global batch of B. Each rank's
// loss gradient is divided by the rows that the global batch really has, gradients are summed over
// the ranks, and the update runs only when every bucket arrived: a step is done by all ranks or by
// none. In a pipeline the replicas of each stage share a batch like that, and their ranks below
// stand for whole pipelines.
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
#include "collectives/communicator.h"
#include "common/time.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/loader.h"
#include "trainer/loop/evaluate.h"
#include "trainer/loop/progress.h"
#include "trainer/loop/step_statistics.h"
#include "trainer/loop/training_setup.h"
#include "trainer/optim/model_state.h"
#include "trainer/precision/training_precision.h"
#include "trainer/strategy/training_step.h"
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
  // The communicators outlive the trainer.
  Trainer(std::unique_ptr<TrainingSetup> preparation, const Communicators& communicators,
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
  bool is_first() const { return communicator_->rank() == 0; }
  // Whether this rank has a part of the model alone.
  bool is_stage() const { return communicators_.stages != nullptr; }
  absl::Status LoadInitialState();
  absl::Status InitializeFromFile();
  // Collective where each rank has a part of the model; else of the rank that resumes.
  absl::Status ReadCheckpoint(uint32_t root);
  // Collective then too: a file of the whole model's.
  absl::StatusOr<SafetensorsFile> OpenFile(uint32_t root, const std::string& path);
  // Collective: to what `root` read.
  absl::Status BroadcastLossScale(uint32_t root);
  absl::Status TrainAll();
  // The next batch, its step and what is told of it.
  absl::Status TrainStep(data::Loader& loader);
  // Of steps whose outcome is known, or of `all`; kExitDiverged.
  absl::Status TakeOutcomes(bool all);
  // Of those taken last, for TensorBoard.
  absl::Status WriteScalars();
  // Until the outcome of every step so far is told.
  absl::Status Settle();
  absl::StatusOr<Evaluation> Evaluated();
  absl::Status EvaluateModel();
  void RecordEvaluation(SteadyTime begin);
  absl::Status SaveCheckpoint();
  // Collective. Tensors of the whole model, on rank 0; elsewhere nothing of worth.
  absl::StatusOr<std::vector<Tensor>> WholeModel(std::vector<Tensor> own);
  StepTimes SteadyMedian() const;
  absl::StatusOr<v1::TrainSummary> Summarize();
  // What of the model there is at the end, by parameters of the whole.
  absl::Status SummarizeWeights(v1::TrainSummary& summary);
  // What this rank's devices hold and did, and its stage, for the summary.
  v1::TrainSummary OwnSummary() const;
  void AddStage(v1::TrainSummary& own) const;
  // Collective. Those of all ranks, on the first.
  absl::Status GatherOwn(v1::TrainSummary& summary);
  double Epochs() const;  // done in the training's whole life
  void SetPhase(const std::string& phase);
  void CountCollectives(uint64_t operations, uint64_t bytes);

  const std::unique_ptr<TrainingSetup> preparation_;
  const v1::TrainSpec& spec_;
  nn::Plan& plan_;
  const Communicators communicators_;
  collectives::Communicator* const communicator_;  // of all ranks
  const TrainerOptions options_;
  const TrainingPrecision precision_;
  ModelState state_;
  std::unique_ptr<TrainingStep> training_step_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;  // of rank 0, where asked for
  ProgressReporter progress_;
  StepStatistics recent_;  // for progress
  StepStatistics steady_;  // for the summary
  // Of a plan over several devices, by device: kernels is what each computed in a step.
  std::vector<StepStatistics> device_steady_;

  uint64_t step_ = 0;        // done in the training's whole life
  uint64_t first_step_ = 0;  // where this generation began
  uint64_t saved_step_;      // the newest checkpoint; none is kNever
  absl::Duration stall_;     // waited for the loader in this generation
  double loss_ = 0;
  std::vector<StepResult> outcomes_;  // taken last
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
