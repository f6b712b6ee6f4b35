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
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/time/time.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/memory_checkpoint.h"
#include "trainer/data/loader.h"
#include "trainer/loop/checkpoint_writer.h"
#include "trainer/loop/loss_monitor.h"
#include "trainer/loop/progress.h"
#include "trainer/loop/rank_requests.h"
#include "trainer/loop/step_agreement.h"
#include "trainer/loop/step_trace.h"
#include "trainer/loop/step_windows.h"
#include "trainer/loop/training_log.h"
#include "trainer/loop/training_setup.h"
#include "trainer/optim/state_snapshot.h"
#include "trainer/strategy/process_groups.h"
#include "trainer/strategy/step_statistics.h"
#include "trainer/strategy/strategy.h"
#include "trainer/tensorboard/tensorboard.h"

namespace muster::train {

// Checkpoint to resume from, and the rank that reads it.
struct ResumePoint {
  uint32_t rank = 0;
  uint64_t step = 0;
  // This job wrote it to disk; otherwise it continues another job, or from a checkpoint in memory.
  bool own = true;
  // The parts of a state in memory, of which `rank` reads the first; empty for a checkpoint on
  // disk.
  std::vector<MemoryPart> memory;
  std::string name;  // of the checkpoint's folder; used only on the rank that reads it
};

struct TrainerOptions {
  std::string job_id;
  uint64_t generation = 1;
  bool canonical_layout = false;  // ranks use different parameter layouts
  std::optional<ResumePoint> resume;
  // Directory for this rank's checkpoints; absent: no checkpoints. Only rank 0 writes, unless
  // shards_checkpoints.
  std::optional<CheckpointDirectory> checkpoints;
  // Whether ranks that see the same directory each write their part of a checkpoint, where the
  // strategy divides it; otherwise rank 0 gathers and writes it.
  bool shards_checkpoints = false;
  // Directory of the checkpoint to resume from; absent: `checkpoints`.
  std::optional<CheckpointDirectory> resume_directory;
  // Called on rank 0 with each checkpoint that it has written.
  std::function<void(const CheckpointRef&)> on_checkpoint = [](const CheckpointRef&) {};
  // The job's newest checkpoint in `checkpoints`; on rank 0.
  std::optional<CheckpointRef> newest_checkpoint;
  // Called on rank 0 for each checkpoint that could not be written.
  std::function<void(uint64_t step, const absl::Status& status)> on_checkpoint_failure =
      [](uint64_t, const absl::Status&) {};
  std::string layout_digest;  // of this rank's state, for `memory`
  // Where this rank leaves its state if a peer is lost; absent: nowhere.
  std::optional<MemoryCheckpoints> memory;
  // Called with the completed steps before this rank leaves its state.
  std::function<void(const absl::Status& failure, uint64_t step)> on_peer_lost =
      [](const absl::Status&, uint64_t) {};
  // Requests to this rank; outlives the trainer. Null: there are none.
  RankRequests* requests = nullptr;
  // Records the steps; outlives the trainer. Null: they are not recorded.
  StepTrace* trace = nullptr;
  // Directory for rank 0's TensorBoard event files; empty: none are written.
  std::string tensorboard_directory;
  std::string node_name;  // for the summary
  ProgressSink progress;
  // Timeout of collectives: a checkpoint may take longer as long as it makes progress.
  absl::Duration failure_timeout = absl::Seconds(30);
  std::string cache_dir;  // for Verifier
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
  // kExitCannotCreate for a final checkpoint that is required and cannot be written, kExitNoInput
  // for an image or an init_from that cannot be read, and kExitNoDevice for a device that has
  // failed;
  // OutOfMemoryError; ABORTED if a newer generation of the job has a checkpoint;
  // CANCELLED if this rank was asked to stop, after the state was saved.
  //
  // All ranks save their state after the same step if one of them is asked to stop. The others go
  // on, and fail because a peer is lost unless they are asked, too.
  absl::StatusOr<v1::TrainSummary> Run();

  // Number of completed steps, for a failure report. Valid after Run.
  uint64_t step() const { return step_; }

 private:
  bool is_first() const { return world_.rank() == 0; }
  absl::Status CreateStrategy();
  absl::Status LoadInitialState();
  // Collective. Continues the record of rank `root`, which is empty on other ranks; see record_.
  absl::Status ContinueRecord(uint32_t root, std::string record, double training_seconds);
  // Files of the checkpoint to resume from, on the rank that reads them; empty on other ranks.
  absl::StatusOr<CheckpointFiles> FindCheckpoint(const std::function<void()>& on_progress,
                                                 CheckpointState& state);
  absl::StatusOr<v1::TrainSummary> RunToEnd();
  absl::Status TrainAll();
  // Collective. Makes up for an evaluation between steps in which an earlier generation ended.
  absl::Status MakeUpEvaluation(uint64_t evaluate_every);
  data::LoaderOptions LoaderOptionsFor(const kernels::DeviceMemory& resident) const;
  // Loads the next batch, runs its step and polls available results.
  absl::Status TrainStep(data::Loader& loader);
  // Processes available step results; with `all`, waits for all of them. Exit code kExitDiverged.
  absl::Status PollStepResults(bool all);
  void Record(const StepResult& result);
  // Reports a loss that is not finite or a spike.
  void MonitorLoss(const StepResult& result);
  // Writes the results polled last to TensorBoard.
  absl::Status WriteScalars();
  // Waits until the results of all steps so far have been polled.
  absl::Status Settle();
  // The first error of this rank's devices, without waiting. Exit code kExitNoDevice.
  absl::Status DeviceError() const;
  // Waits until the devices have finished all calls. Returns their first error.
  absl::Status AwaitDevices() const;
  // Collective. Returns false, on all ranks, if one of them was asked to stop. Does nothing if the
  // evaluation of this step is known.
  absl::StatusOr<bool> EvaluateModel();
  void RecordEvaluation();
  // Time that the job has trained, as in its step_end_seconds.
  absl::Duration TrainingTime(SteadyTime now) const {
    return earlier_training_ + (now - training_start_ - not_training_);
  }

  // Requests and checkpoints (trainer_checkpoint.cc).
  //
  // What to do after a step. Collective in steps in which an agreement is due.
  absl::StatusOr<AgreedRequests> AgreeAfterStep();
  bool CheckpointIsDue(SteadyTime now) const;  // on rank 0
  // A copy of the state whose checkpoint is being written, or will be.
  struct StateCopy {
    explicit StateCopy(size_t slot) : snapshot(slot) {}

    StateSnapshot snapshot;
    CheckpointState state;
    bool in_parts = false;  // each rank writes its part
    absl::Duration stall;   // of the training
  };

  // Collective; no write is in flight. Starts to write the current state, unless that was done.
  absl::Status SaveCheckpoint();
  // Collective. Copies the current state and checks the devices of all ranks.
  absl::Status Copy(StateCopy& copy);
  // Adds to the reported time that training stopped for checkpoints.
  void AddCheckpointStall(absl::Duration stall);
  // No rank's write is in flight. Starts to write the copy.
  void StartWriting(StateCopy& copy);
  // The same for the copy in the queue.
  void StartQueued();
  // Collective; called before the first step. Decides how checkpoints are divided, and takes a
  // snapshot that is not written: it allocates the memory of all later ones.
  absl::Status PrepareSnapshots();
  // Collective. Fails, on all ranks, if a device of one of them has failed.
  absl::Status AgreeOnDevices();
  // Collective. Copies the state. Neither this nor SaveCheckpoint converts it or uses files, except
  // after a failure.
  absl::Status TakeSnapshot(StateCopy& copy);
  // Work of this rank's writer; null if it has nothing to write.
  CheckpointWriter::Write WriteOfSnapshot(StateCopy& copy);
  // Collective. Whether all ranks can write their parts of checkpoints.
  absl::StatusOr<bool> CanWriteParts();
  // The same as WriteOfSnapshot for this rank's part.
  CheckpointWriter::Write WriteOfPart(StateCopy& copy);
  // Processes the result of a write that is done.
  void PollWriter();
  // Called on all ranks once none of them is writing and one could not write. Removes what they
  // have written. Returns rank 0's error if it ends the training.
  absl::Status CleanUpFailedWrite();
  // Collective. Waits until all writes are done.
  absl::Status AwaitWriters();
  // Collective. Reads the metric of the best checkpoint so far.
  absl::Status LoadBest();
  // Collective. Saves the current state if its evaluation is the best so far, without waiting for a
  // write in flight.
  absl::Status SaveIfBest();
  // Collective. Whether `value` is true on any rank.
  absl::StatusOr<bool> OnAnyRank(bool value);
  // Collective. Saves the copy in the queue and the current state, and waits until they are on
  // disk.
  absl::Status SaveAndWait();
  // Collective. The same at the end of the training; fails on all ranks if the checkpoint is
  // required and could not be written.
  absl::Status SaveFinal();
  // CANCELLED if this rank was asked to stop.
  absl::Status CheckStop() const;
  // Waits for this rank's write after another error.
  void FinishWriting();
  // Whether this rank can leave its state, or its part of it, in memory.
  bool LeavesState() const;
  // Leaves the state of the last completed step in memory if `failure` is the loss of a peer.
  void LeaveState(const absl::Status& failure);
  // Collective; after Settle. Leaves the state in memory, or saves it if a rank could not write it.
  absl::Status LeaveAtStop();
  // Writes the state of the last completed step to memory.
  absl::Status WriteToMemory();
  // Removes the state that an earlier generation left, once all ranks have it.
  void ForgetEarlierState();
  // Longest interval between two reports of a rank that works while others wait.
  absl::Duration ReportInterval() const { return options_.failure_timeout / 8; }
  absl::StatusOr<v1::TrainSummary> Summarize();
  double Epochs() const;  // completed, including earlier generations
  void SetPhase(const std::string& phase);
  void CountCollectives(uint64_t operations, uint64_t bytes);

  const std::unique_ptr<TrainingSetup> setup_;
  const v1::TrainSpec& spec_;
  const ProcessGroups& groups_;
  collectives::Communicator& world_;
  const TrainerOptions options_;
  RankRequests no_requests_;
  RankRequests& requests_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;  // on rank 0, if enabled
  ProgressReporter progress_;
  TrainingLog log_;
  StepStatistics statistics_;
  std::optional<StepWindowRecorder> windows_;  // created with the strategy
  LossMonitor loss_monitor_;

  uint64_t step_ = 0;                // completed, including earlier generations
  uint64_t first_step_ = 0;          // first step of this generation
  bool has_state_ = false;           // the initial state has been loaded
  absl::Duration stall_;             // time waited for the loader in this generation
  std::vector<StepResult> results_;  // results polled last
  Evaluation evaluation_;
  std::optional<uint64_t> evaluated_step_;
  // Fields of the summary that cover the job rather than this generation: first_loss_step, losses,
  // step_end_seconds, evaluations, evaluation_seconds, final_loss and stall_seconds. Checkpoints
  // contain it, so that it covers all generations.
  v1::TrainSummary record_;
  absl::Duration earlier_training_;  // training time of earlier generations
  absl::Duration trained_;           // TrainingTime at the end of the last completed step
  // Times of this generation.
  SteadyTime training_start_;    // start of the first step
  SteadyTime evaluation_start_;  // of the last evaluation
  absl::Duration not_training_;  // evaluations and the final checkpoint

  StepAgreement agreement_;
  // Step of the newest copy, which is on disk, is being written, is queued or could not be written.
  std::optional<uint64_t> saved_step_;
  std::optional<CheckpointRef> newest_;  // the job's newest checkpoint on disk; on rank 0
  // Best value of checkpoint.keep_best of a checkpoint; higher is better. The same on all ranks.
  double best_ = -std::numeric_limits<double>::infinity();
  bool write_failed_ = false;  // the newest snapshot could not be written; on rank 0
  absl::Status write_error_;   // why not
  bool save_due_ = false;      // whether a checkpoint by steps is due since the newest snapshot
  uint64_t attempts_ = 0;      // checkpoints written in parts; the same on all ranks
  SteadyTime last_snapshot_;   // or the start of the training
  // Whether each rank writes its part of a checkpoint; the same on all ranks. Unknown before the
  // first snapshot and after a failure.
  std::optional<bool> in_parts_;
  // The writer uses one of the copies while it is busy. The memory of the second one is allocated
  // when it is first needed.
  StateCopy copies_[2] = {StateCopy(0), StateCopy(1)};
  size_t current_ = 0;     // copy that is being written, or was written last; the same on all ranks
  bool queued_ = false;    // the other copy is to be written next; the same on all ranks
  CheckpointRef written_;  // used by the writer while it is busy
  CheckpointWriter writer_;  // destroyed before what it writes
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_TRAINER_H_
