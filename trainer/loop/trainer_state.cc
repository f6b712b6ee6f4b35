// Initial state and checkpoints of a training.
#include <filesystem>
#include <utility>

#include "common/now.h"
#include "common/status.h"
#include "trainer/exit_code.h"
#include "trainer/loop/trainer.h"

namespace muster::train {

absl::Status Trainer::LoadInitialState() {
  CountCollectives(1, 0);
  if (!options_.resume.has_value()) return strategy_->InitializeState();
  step_ = first_step_ = options_.resume->step;
  // Otherwise the checkpoint is not in the job's directory: it is another job's or, because the
  // lowest rank that has it reads it, on another node. It is then written even if no step is left.
  if (options_.resume->own && options_.resume->rank == 0) saved_step_ = step_;
  ASSIGN_OR_RETURN(const CheckpointFiles files, FindCheckpoint());
  RETURN_IF_ERROR(strategy_->RestoreState(files, options_.resume->rank));
  if (strategy_->loss_scale() != nullptr) CountCollectives(1, sizeof(LossScaleState));
  return absl::OkStatus();
}

absl::StatusOr<CheckpointFiles> Trainer::FindCheckpoint() {
  CheckpointFiles files;
  if (world_.rank() != options_.resume->rank) return files;
  const std::optional<CheckpointDirectory>& directory =
      options_.resume_directory.has_value() ? options_.resume_directory : options_.checkpoints;
  if (!directory.has_value()) {
    return absl::InternalError("cannot resume: rank has no checkpoint directory");
  }
  ASSIGN_OR_RETURN(const CheckpointState state, directory->Verify(step_));
  files.model = directory->ModelPath(step_);
  files.optimizer = directory->OptimizerPath(step_);
  files.average = directory->AveragePath(step_).value_or("");
  files.loss_scale = state.loss_scale;
  return files;
}

absl::Status Trainer::SaveCheckpoint() {
  if (!options_.checkpoints.has_value() || saved_step_ == step_) return absl::OkStatus();
  SetPhase("checkpointing");
  const SteadyTime begin = Now().steady;
  ASSIGN_OR_RETURN(ModelTensors tensors, strategy_->GatherState(step_));
  saved_step_ = step_;
  if (!is_first()) return absl::OkStatus();
  Checkpoint checkpoint;
  checkpoint.state.step = step_;
  checkpoint.state.epoch = Epochs();
  checkpoint.state.epoch_samples = setup_->steps.At(step_).first;
  checkpoint.state.seed = spec_.seed();
  checkpoint.state.global_batch = spec_.global_batch();
  checkpoint.state.world_size = world_.size();
  checkpoint.state.job_id = options_.job_id;
  checkpoint.state.generation = options_.generation;
  checkpoint.state.training_digest = setup_->training_digest;
  if (strategy_->loss_scale() != nullptr) checkpoint.state.loss_scale = *strategy_->loss_scale();
  checkpoint.model = std::move(tensors.model);
  checkpoint.optimizer = std::move(tensors.optimizer);
  checkpoint.average = std::move(tensors.average);
  const absl::Status written = options_.checkpoints->Write(checkpoint);
  if (written.ok()) {
    const std::filesystem::path model = options_.checkpoints->ModelPath(step_);
    log_.CheckpointSaved(step_, model.parent_path().string(), Now().steady - begin);
  }
  // Aborted because a newer generation owns the directory, which itself is fine.
  if (absl::IsAborted(written)) return written;
  RETURN_IF_ERROR(WithExitCode(written, kExitCannotCreate));
  options_.on_checkpoint(step_);
  return absl::OkStatus();
}

}  // namespace muster::train
