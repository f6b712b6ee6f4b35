// Initial state of a training.
#include <utility>

#include "absl/status/status.h"
#include "common/now.h"
#include "common/status.h"
#include "trainer/checkpoint/verifier.h"
#include "trainer/data/cache_file.h"
#include "trainer/loop/one_rank_work.h"
#include "trainer/loop/trainer.h"

namespace muster::train {
namespace {

constexpr char kVerifying[] = "verifying-checkpoint";

}  // namespace

absl::Status Trainer::LoadInitialState() {
  CountCollectives(1, 0);
  RETURN_IF_ERROR(LoadBest());
  if (!options_.resume.has_value()) return strategy_->InitializeState();
  step_ = first_step_ = options_.resume->step;
  // Otherwise the checkpoint is not in the job's directory: it is another job's or, because the
  // lowest rank that has it reads it, on another node. It is then written even if no step is left.
  if (options_.resume->own && options_.resume->rank == 0) {
    saved_step_ = step_;
    if (is_first()) newest_ = CheckpointRef{options_.resume->name, step_};
  }
  CheckpointFiles files;
  if (!options_.resume->memory.empty()) {
    // Other nodes may have it.
    if (options_.memory.has_value()) files.memory = &*options_.memory;
    files.parts = options_.resume->memory;
    files.loss_scale = files.parts.front().checkpoint.loss_scale;
  } else {
    RETURN_IF_ERROR(RunOnOneRank(world_, options_.resume->rank, ReportInterval(),
                                 [&](const std::function<void()>& on_progress) -> absl::Status {
                                   ASSIGN_OR_RETURN(files, FindCheckpoint(on_progress));
                                   return absl::OkStatus();
                                 }));
  }
  RETURN_IF_ERROR(strategy_->RestoreState(files, options_.resume->rank));
  if (strategy_->loss_scale() != nullptr) CountCollectives(1, sizeof(LossScaleState));
  return absl::OkStatus();
}

absl::StatusOr<CheckpointFiles> Trainer::FindCheckpoint(const std::function<void()>& on_progress) {
  CheckpointFiles files;
  const std::optional<CheckpointDirectory>& directory =
      options_.resume_directory.has_value() ? options_.resume_directory : options_.checkpoints;
  if (!directory.has_value()) {
    return absl::InternalError("cannot resume: rank has no checkpoint directory");
  }
  // It has been verified before the ranks joined, normally with a result in the cache.
  data::Cache cache(options_.cache_dir, [&](uint64_t done, absl::string_view unit) {
    if (progress_.progress().phase() != kVerifying) SetPhase(kVerifying);
    progress_.SetPhaseProgress(done, unit);
    on_progress();
  });
  cache.lock_timeout = options_.failure_timeout / 2;
  const Verifier verifier(std::move(cache), options_.job_id, options_.generation);
  const std::string& name = options_.resume->name;
  ASSIGN_OR_RETURN(const CheckpointState state, directory->Verify(name, verifier));
  files.model = directory->ModelPath(name);
  files.optimizer = directory->OptimizerPath(name);
  files.average = directory->AveragePath(name).value_or("");
  files.loss_scale = state.loss_scale;
  return files;
}

bool Trainer::LeavesState() const {
  return options_.memory.has_value() && strategy_->keeps_complete_state();
}

void Trainer::LeaveState(const absl::Status& failure) {
  const bool peer_lost =
      absl::IsAborted(failure) || absl::IsUnavailable(failure) || absl::IsDeadlineExceeded(failure);
  if (!options_.memory.has_value() || !has_state_ || !peer_lost) return;
  options_.on_peer_lost(failure, step_);
  WriteToMemory().IgnoreError();  // it is in the log
}

absl::Status Trainer::LeaveAtStop() {
  SetPhase("checkpointing");
  // From then on, no rank waits for this one's device.
  RETURN_IF_ERROR(AgreeOnDevices());
  ASSIGN_OR_RETURN(const bool failed, OnAnyRank(!WriteToMemory().ok()));
  return failed ? SaveAndWait() : absl::OkStatus();
}

absl::Status Trainer::WriteToMemory() {
  const SteadyTime start = SteadyNow();
  const absl::StatusOr<WholeState> state = strategy_->CompleteState();
  MemoryCheckpoint checkpoint{
      .step = step_, .generation = options_.generation, .layout = options_.layout_digest};
  if (!state.ok()) {
    log_.StateLeft(checkpoint, state.status(), SteadyNow() - start);
    return state.status();
  }
  requests_.BeginToLeave();
  checkpoint.step = step_ + (state->after_failed_step ? 1 : 0) - state->unfinished_steps;
  checkpoint.part = state->part;
  checkpoint.parts = state->parts;
  if (strategy_->loss_scale() != nullptr) checkpoint.loss_scale = *strategy_->loss_scale();
  const absl::StatusOr<bool> written = options_.memory->Write(checkpoint, state->arrays);
  log_.StateLeft(checkpoint, written, SteadyNow() - start);
  return written.status();
}

void Trainer::ForgetEarlierState() {
  if (options_.memory.has_value()) options_.memory->RemoveBefore(options_.generation);
}

}  // namespace muster::train
