// Initial state of a training.
#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/time/now.h"
#include "trainer/checkpoint/verifier.h"
#include "trainer/data/cache_file.h"
#include "trainer/loop/one_rank_work.h"
#include "trainer/loop/trainer.h"
#include "trainer/strategy/broadcast_bytes.h"

namespace muster::train {
namespace {

constexpr char kVerifying[] = "verifying-checkpoint";

}  // namespace

absl::Status Trainer::LoadInitialState() {
  CountCollectives(1, 0);
  RETURN_IF_ERROR(LoadBest());
  if (!options_.resume.has_value()) {
    record_.set_first_loss_step(1);
    return strategy_->InitializeState();
  }
  step_ = first_step_ = options_.resume->step;
  // Otherwise the checkpoint is not in the job's directory: it is another job's or, because the
  // lowest rank that has it reads it, on another node. It is then written even if no step is left.
  if (options_.resume->own && options_.resume->rank == 0) {
    saved_step_ = step_;
  }
  CheckpointFiles files;
  CheckpointState state;
  if (!options_.resume->memory.empty()) {
    // Other nodes may have it.
    if (options_.memory.has_value()) files.memory = &*options_.memory;
    files.parts = options_.resume->memory;
    const MemoryCheckpoint& first = files.parts.front().checkpoint;
    files.loss_scale = first.loss_scale;
    state.training_seconds = first.training_seconds;
    state.summary = first.summary;
  } else {
    RETURN_IF_ERROR(RunOnOneRank(world_, options_.resume->rank, ReportInterval(),
                                 [&](const std::function<void()>& on_progress) -> absl::Status {
                                   ASSIGN_OR_RETURN(files, FindCheckpoint(on_progress, state));
                                   return absl::OkStatus();
                                 }));
  }
  RETURN_IF_ERROR(strategy_->RestoreState(files, options_.resume->rank));
  if (strategy_->loss_scale() != nullptr) CountCollectives(1, sizeof(LossScaleState));
  return ContinueRecord(options_.resume->rank, std::move(state.summary), state.training_seconds);
}

absl::Status Trainer::ContinueRecord(uint32_t root, std::string record, double training_seconds) {
  CountCollectives(3, record.size());
  RETURN_IF_ERROR(BroadcastBytes(world_, root, record));
  RETURN_IF_ERROR(
      world_.Broadcast(&training_seconds, 1, collectives::DataType::kFloat64, root)->Wait());
  if (!record_.ParseFromString(record)) {
    return absl::DataLossError("the checkpoint's summary cannot be parsed");
  }
  earlier_training_ = trained_ = absl::Seconds(training_seconds);
  progress_.progress().set_loss(record_.final_loss());
  const uint64_t first = record_.first_loss_step();
  const auto steps = static_cast<int>(
      std::min<uint64_t>(limits::kRecordedLosses, first == 0 ? 0 : step_ + 1 - first));
  // A checkpoint in memory may have times of steps that were not completed.
  if (record_.losses_size() > steps) record_.mutable_losses()->Truncate(steps);
  if (record_.step_end_seconds_size() > steps) record_.mutable_step_end_seconds()->Truncate(steps);
  // A checkpoint of an earlier release or of another job has no record of this job.
  if (first == 0) record_.set_first_loss_step(step_ + 1);
  if (record_.evaluations().empty()) return absl::OkStatus();
  const v1::Evaluation& last = *record_.evaluations().rbegin();
  evaluation_ = {.loss = last.test_loss(), .accuracy = last.test_accuracy()};
  evaluated_step_ = last.step();
  progress_.progress().set_test_accuracy(evaluation_.accuracy);
  progress_.progress().set_test_loss(evaluation_.loss);
  return absl::OkStatus();
}

absl::StatusOr<CheckpointFiles> Trainer::FindCheckpoint(const std::function<void()>& on_progress,
                                                        CheckpointState& state) {
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
  ASSIGN_OR_RETURN(state, directory->Verify(name, verifier));
  ASSIGN_OR_RETURN(state.summary, ReadSummary(directory->FolderPath(name)));
  if (state.job_id != options_.job_id) {
    v1::TrainSummary other;
    other.ParseFromString(state.summary);
    v1::TrainSummary own;
    own.set_final_loss(other.final_loss());
    state.summary = own.SerializeAsString();
    state.training_seconds = 0;
  }
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
  for (const StepResult& result : state->results) Record(result);
  if (state->after_failed_step) trained_ += statistics_.TypicalMedian().step;
  while (record_.step_end_seconds_size() < record_.losses_size()) {
    record_.add_step_end_seconds(static_cast<float>(absl::ToDoubleSeconds(trained_)));
  }
  checkpoint.training_seconds = absl::ToDoubleSeconds(trained_);
  checkpoint.summary = record_.SerializeAsString();
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
