// What a training begins with, and what it keeps for another.
#include <algorithm>
#include <iterator>
#include <utility>

#include "common/status.h"
#include "glog/logging.h"
#include "trainer/loop/exit_code.h"
#include "trainer/loop/trainer.h"
#include "trainer/precision/loss_scale.h"
#include "trainer/strategy/pipeline/stage_tensors.h"

namespace muster::train {

absl::Status Trainer::LoadInitialState() {
  uint32_t root = 0;
  if (options_.resume.has_value()) {
    root = options_.resume->rank;
    preparation_->optimizer->KeepAll();  // a checkpoint is of everything
    step_ = first_step_ = saved_step_ = options_.resume->step;
    if (communicator_->rank() == root || is_stage()) RETURN_IF_ERROR(ReadCheckpoint(root));
    RETURN_IF_ERROR(BroadcastLossScale(root));
  } else {
    plan_.Initialize(spec_.seed());
    if (!spec_.init_from().empty() && (is_first() || is_stage())) {
      RETURN_IF_ERROR(InitializeFromFile());
    }
  }
  CountCollectives(1, 0);
  const bool resuming = options_.resume.has_value();
  // Stages have read their parts, all replicas the same.
  if (!is_stage()) RETURN_IF_ERROR(state_.Broadcast(*communicator_, root, resuming));
  training_step_->KeepOwnOptimizerStates();
  // A file may hold more digits than the weights are kept in.
  state_.RoundParameters(precision_.weights);
  // Until the first update, which is not the first step where that overflows.
  if (!resuming) state_.StartAverage();
  return absl::OkStatus();
}

absl::Status Trainer::InitializeFromFile() {
  const std::vector<std::string> excluded(spec_.init_exclude().begin(), spec_.init_exclude().end());
  const absl::StatusOr<SafetensorsFile> file = OpenFile(0, spec_.init_from());
  // Whose file it is has told already.
  if (absl::IsAborted(file.status())) return file.status();
  RETURN_IF_ERROR(WithExitCode(file.status(), kExitNoInput));
  return WithExitCode(state_.InitializeFrom(*file, excluded), kExitNoInput);
}

absl::StatusOr<SafetensorsFile> Trainer::OpenFile(uint32_t root, const std::string& path) {
  return is_stage() ? OpenForAll(*communicator_, root, path) : SafetensorsFile::Open(path);
}

absl::Status Trainer::ReadCheckpoint(uint32_t root) {
  const bool is_root = communicator_->rank() == root;
  std::string model, optimizer, average;
  if (is_root) {
    if (!options_.checkpoints.has_value()) {
      return absl::InternalError("told to resume from a checkpoint without a directory for any");
    }
    ASSIGN_OR_RETURN(const CheckpointState state, options_.checkpoints->Verify(step_));
    model = options_.checkpoints->ModelPath(step_);
    optimizer = options_.checkpoints->OptimizerPath(step_);
    average = options_.checkpoints->AveragePath(step_).value_or("");
    if (training_step_->loss_scale() != nullptr && state.loss_scale.has_value()) {
      training_step_->RestoreLossScale(*state.loss_scale);
    }
  }
  ASSIGN_OR_RETURN(const SafetensorsFile model_file, OpenFile(root, model));
  RETURN_IF_ERROR(state_.ImportModel(model_file));
  ASSIGN_OR_RETURN(const SafetensorsFile optimizer_file, OpenFile(root, optimizer));
  RETURN_IF_ERROR(state_.ImportOptimizer(optimizer_file));
  uint8_t has_average = average.empty() ? 0 : 1;
  if (is_stage()) {
    RETURN_IF_ERROR(
        communicator_->Broadcast(&has_average, 1, collectives::DataType::kUint8, root)->Wait());
  }
  if (has_average != 0) {
    ASSIGN_OR_RETURN(const SafetensorsFile average_file, OpenFile(root, average));
    RETURN_IF_ERROR(state_.ImportAverage(average_file));
  } else {
    state_.StartAverage();
  }
  LOG_IF(INFO, is_root) << "resumed from " << model;
  return absl::OkStatus();
}

absl::Status Trainer::BroadcastLossScale(uint32_t root) {
  const LossScaleState* const state = training_step_->loss_scale();
  if (state == nullptr) return absl::OkStatus();
  // Counts of steps, which a double holds exactly.
  double values[] = {state->scale, static_cast<double>(state->clean_steps),
                     static_cast<double>(state->skipped_steps),
                     static_cast<double>(state->overflows_in_row)};
  RETURN_IF_ERROR(
      communicator_->Broadcast(values, std::size(values), collectives::DataType::kFloat64, root)
          ->Wait());
  training_step_->RestoreLossScale({.scale = values[0],
                                    .clean_steps = static_cast<uint64_t>(values[1]),
                                    .skipped_steps = static_cast<uint64_t>(values[2]),
                                    .overflows_in_row = static_cast<uint64_t>(values[3])});
  CountCollectives(1, sizeof(values));
  return absl::OkStatus();
}

absl::Status Trainer::SaveCheckpoint() {
  if (!options_.checkpoints.has_value() || saved_step_ == step_) return absl::OkStatus();
  SetPhase("checkpointing");
  ASSIGN_OR_RETURN(const TrainingStep::WholeStates optimizer,
                   training_step_->GatherOptimizerStates());
  saved_step_ = step_;
  // Rank 0's buffers are the ones that count, or those of its pipeline.
  if (communicators_.equals()->rank() > 0) return absl::OkStatus();
  Checkpoint checkpoint;
  checkpoint.state.step = step_;
  checkpoint.state.epoch = Epochs();
  checkpoint.state.epoch_samples = preparation_->steps.At(step_).first;
  checkpoint.state.seed = spec_.seed();
  checkpoint.state.global_batch = spec_.global_batch();
  checkpoint.state.world_size = communicator_->size();
  checkpoint.state.job_id = options_.job_id;
  checkpoint.state.generation = options_.generation;
  checkpoint.state.training_digest = preparation_->training_digest;
  if (training_step_->loss_scale() != nullptr) {
    checkpoint.state.loss_scale = *training_step_->loss_scale();
  }
  // Batch norm saw every part of a batch by itself, as PyTorch counts.
  const uint32_t parts = is_stage() ? spec_.strategy().pipeline().micro_batches()
                                    : std::max(1u, spec_.accumulation_steps());
  const uint64_t batches = training_step_->Updates(step_) * parts;
  ASSIGN_OR_RETURN(checkpoint.model, WholeModel(state_.ExportModel(batches)));
  ASSIGN_OR_RETURN(checkpoint.optimizer, WholeModel(state_.ExportOptimizer(optimizer.states())));
  ASSIGN_OR_RETURN(checkpoint.average, WholeModel(state_.ExportAverage(batches)));
  if (!is_first()) return absl::OkStatus();
  const absl::Status written = options_.checkpoints->Write(checkpoint);
  // A stale writer is no fault of the directory's.
  if (absl::IsAborted(written)) return written;
  return WithExitCode(written, kExitCannotCreate);
}

absl::StatusOr<std::vector<Tensor>> Trainer::WholeModel(std::vector<Tensor> own) {
  if (!is_stage()) return own;
  return GatherTensors(*communicators_.stages, std::move(own));
}

}  // namespace muster::train
