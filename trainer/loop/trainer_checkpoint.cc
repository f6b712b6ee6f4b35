// Requests to a training, and its checkpoints: when they are taken, and how they are written.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"
#include "trainer/exit_code.h"
#include "trainer/loop/one_rank_work.h"
#include "trainer/loop/trainer.h"
#include "trainer/strategy/broadcast_bytes.h"

namespace muster::train {
namespace {

// Longest interval between two reports of the progress of a write that the ranks wait for.
constexpr absl::Duration kShownInterval = absl::Milliseconds(250);

// The metric `keep_best`; higher is better.
double MetricOf(const std::string& keep_best, double accuracy, double loss) {
  return keep_best == "test_loss" ? -loss : accuracy;
}

}  // namespace

absl::StatusOr<AgreedRequests> Trainer::AgreeAfterStep() {
  PollWriter();
  const uint64_t every_steps = spec_.checkpoint().every_steps();
  // All ranks know these steps. If the previous checkpoint is still being written, the next one is
  // taken in a later agreement.
  const bool save_now = every_steps > 0 && step_ % every_steps == 0;
  save_due_ |= save_now;
  if (!agreement_.StepDone() && !save_now) return AgreedRequests();
  const SteadyTime now = SteadyNow();
  ASSIGN_OR_RETURN(AgreedRequests agreed,
                   agreement_.Agree({.stop = requests_.stop_requested(),
                                     .in_memory = requests_.leave_in_memory(),
                                     .only_on_disk = !LeavesState(),
                                     .checkpoint = is_first() && CheckpointIsDue(now),
                                     .writing = writer_.busy(),
                                     .failed = write_failed_},
                                    now));
  if (agreed.failed && !agreed.writing) RETURN_IF_ERROR(CleanUpFailedWrite());
  if (queued_ && !agreed.writing) {
    StartQueued();
    agreed.checkpoint = false;  // remains due
  }
  return agreed;
}

bool Trainer::CheckpointIsDue(SteadyTime now) const {
  if (!options_.checkpoints.has_value()) return false;
  const absl::Duration every = FromProto(spec_.checkpoint().every());
  return save_due_ || requests_.checkpoint_requested() ||
         (every > absl::ZeroDuration() && now - last_snapshot_ >= every);
}

absl::Status Trainer::SaveCheckpoint() {
  requests_.ClearCheckpointRequest();
  save_due_ = false;
  if (!options_.checkpoints.has_value() || saved_step_ == step_) return absl::OkStatus();
  StateCopy& copy = copies_[current_];
  RETURN_IF_ERROR(Copy(copy));
  StartWriting(copy);
  return absl::OkStatus();
}

absl::Status Trainer::Copy(StateCopy& copy) {
  SetPhase("checkpointing");
  last_snapshot_ = SteadyNow();
  RETURN_IF_ERROR(TakeSnapshot(copy));
  RETURN_IF_ERROR(AgreeOnDevices());
  saved_step_ = step_;
  copy.stall = SteadyNow() - last_snapshot_;
  AddCheckpointStall(copy.stall);
  return absl::OkStatus();
}

void Trainer::AddCheckpointStall(absl::Duration stall) {
  v1::Progress& progress = progress_.progress();
  progress.set_checkpoint_stall_seconds(progress.checkpoint_stall_seconds() +
                                        absl::ToDoubleSeconds(stall));
}

void Trainer::StartWriting(StateCopy& copy) {
  write_failed_ = false;
  write_error_ = absl::OkStatus();
  CheckpointWriter::Write write = copy.in_parts ? WriteOfPart(copy) : WriteOfSnapshot(copy);
  if (write == nullptr) return;
  requests_.SetWriting(true);
  writer_.Start(copy.state.step, [this, write = std::move(write)](const ByteProgress& progress) {
    absl::Status status = write(progress);
    requests_.SetWriting(false);
    return status;
  });
}

void Trainer::StartQueued() {
  queued_ = false;
  current_ = 1 - current_;
  StartWriting(copies_[current_]);
}

// An error until here, on any rank, may have changed the gradients of all, or the snapshot.
absl::Status Trainer::AgreeOnDevices() {
  RETURN_IF_ERROR(AwaitDevices());
  if (strategy_->device().host_memory() || world_.size() == 1) return absl::OkStatus();
  CountCollectives(1, 0);
  return world_.Barrier()->Wait();
}

absl::Status Trainer::PrepareSnapshots() {
  return options_.checkpoints.has_value() ? TakeSnapshot(copies_[current_]) : absl::OkStatus();
}

absl::Status Trainer::TakeSnapshot(StateCopy& copy) {
  if (!in_parts_.has_value()) {
    ASSIGN_OR_RETURN(in_parts_, CanWriteParts());
  }
  copy.in_parts = *in_parts_;
  RETURN_IF_ERROR(copy.in_parts ? strategy_->SnapshotPart(step_, copy.snapshot)
                                : strategy_->SnapshotState(step_, copy.snapshot));
  CheckpointState& state = copy.state;
  state.step = step_;
  state.epoch = Epochs();
  state.epoch_samples = setup_->steps.At(step_).first;
  state.seed = spec_.seed();
  state.global_batch = spec_.global_batch();
  state.world_size = world_.size();
  state.job_id = options_.job_id;
  state.generation = options_.generation;
  state.training = setup_->identity.fields;
  if (strategy_->loss_scale() != nullptr) state.loss_scale = *strategy_->loss_scale();
  state.test_accuracy.reset();
  state.test_loss.reset();
  if (evaluated_step_ == step_) {
    state.test_accuracy = evaluation_.accuracy;
    state.test_loss = evaluation_.loss;
  }
  state.training_seconds = absl::ToDoubleSeconds(trained_);
  if (is_first()) state.summary = record_.SerializeAsString();
  return absl::OkStatus();
}

CheckpointWriter::Write Trainer::WriteOfSnapshot(StateCopy& copy) {
  if (!is_first()) return nullptr;
  return [this, &copy](const ByteProgress& progress) -> absl::Status {
    ModelTensors tensors = copy.snapshot.Convert();
    const Checkpoint checkpoint = {.state = copy.state,
                                   .model = std::move(tensors.model),
                                   .optimizer = std::move(tensors.optimizer),
                                   .average = std::move(tensors.average)};
    ASSIGN_OR_RETURN(written_, options_.checkpoints->Write(checkpoint, progress));
    return absl::OkStatus();
  };
}

void Trainer::PollWriter() {
  const std::optional<CheckpointWriter::Result> result = writer_.TakeResult();
  // Rank 0 processes the results of all parts.
  if (!result.has_value() || !is_first()) return;
  if (result->status.ok()) {
    newest_ = written_;
    log_.CheckpointSaved(result->step, options_.checkpoints->FolderPath(newest_->name),
                         result->duration, copies_[current_].stall);
    options_.on_checkpoint(*newest_);
    return;
  }
  write_failed_ = true;
  write_error_ = result->status;
  log_.CheckpointFailed(result->step, write_error_);
  // A newer generation owns the directory, which itself is fine.
  if (!absl::IsAborted(write_error_)) options_.on_checkpoint_failure(result->step, write_error_);
}

absl::Status Trainer::CleanUpFailedWrite() {
  in_parts_.reset();
  // The copy is made again if it is still needed.
  if (!queued_) saved_step_.reset();
  if (!std::exchange(write_failed_, false)) return absl::OkStatus();
  // A rank that was slower than rank 0 may have created the folder again.
  options_.checkpoints->Discard(copies_[current_].state.step);
  const bool fatal = absl::IsAborted(write_error_) || ExitCodeOf(write_error_) != kExitFailure;
  return fatal ? write_error_ : absl::OkStatus();
}

absl::Status Trainer::AwaitWriters() {
  SetPhase("checkpointing");
  const SteadyTime begin = SteadyNow();
  RETURN_IF_ERROR(AwaitAllWriters(world_, writer_, std::min(ReportInterval(), kShownInterval), [&] {
    if (writer_.busy()) progress_.SetPhaseProgress(writer_.written_bytes() >> 20, "MiB written");
    PollWriter();
    return absl::OkStatus();
  }));
  AddCheckpointStall(SteadyNow() - begin);
  ASSIGN_OR_RETURN(const bool failed, OnAnyRank(write_failed_));
  return failed ? CleanUpFailedWrite() : absl::OkStatus();
}

absl::StatusOr<bool> Trainer::OnAnyRank(bool value) {
  int32_t ranks = value ? 1 : 0;
  RETURN_IF_ERROR(
      world_
          .AllReduce(&ranks, &ranks, 1, collectives::DataType::kInt32, collectives::ReduceOp::kSum)
          ->Wait());
  return ranks > 0;
}

absl::Status Trainer::LoadBest() {
  const std::string& keep_best = spec_.checkpoint().keep_best();
  if (keep_best.empty() || !options_.checkpoints.has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(
      RunOnOneRank(world_, /*worker=*/0, ReportInterval(),
                   [&](const std::function<void()>& on_progress) -> absl::Status {
                     ASSIGN_OR_RETURN(const auto best, options_.checkpoints->FindBest(on_progress));
                     if (!best.has_value()) return absl::OkStatus();
                     ASSIGN_OR_RETURN(const CheckpointState state,
                                      ReadState(options_.checkpoints->FolderPath(best->name)));
                     best_ = MetricOf(keep_best, state.test_accuracy.value_or(best_),
                                      state.test_loss.value_or(-best_));
                     return absl::OkStatus();
                   }));
  return world_.Broadcast(&best_, 1, collectives::DataType::kFloat64, /*root=*/0)->Wait();
}

absl::Status Trainer::SaveIfBest() {
  const std::string& keep_best = spec_.checkpoint().keep_best();
  if (keep_best.empty() || evaluated_step_ != step_) return absl::OkStatus();
  const double metric = MetricOf(keep_best, evaluation_.accuracy, evaluation_.loss);
  if (!(metric > best_)) return absl::OkStatus();
  best_ = metric;
  PollWriter();
  ASSIGN_OR_RETURN(const bool writing, OnAnyRank(writer_.busy()));
  ASSIGN_OR_RETURN(const bool failed, OnAnyRank(write_failed_));
  if (failed) in_parts_.reset();
  if (failed && !writing) RETURN_IF_ERROR(CleanUpFailedWrite());
  // A copy in the queue is not the best any more.
  queued_ = false;
  if (!writing) return SaveCheckpoint();
  if (!options_.checkpoints.has_value() || saved_step_ == step_) return absl::OkStatus();
  // The state of this step is needed, not that of the step at which the disk is free.
  RETURN_IF_ERROR(Copy(copies_[1 - current_]));
  queued_ = true;
  return absl::OkStatus();
}

absl::Status Trainer::SaveAndWait() {
  if (!options_.checkpoints.has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(AwaitWriters());
  if (queued_) {
    // Before the current state: a checkpoint replaces those of later steps.
    StartQueued();
    RETURN_IF_ERROR(AwaitWriters());
  }
  if (saved_step_ == step_) return absl::OkStatus();
  RETURN_IF_ERROR(SaveCheckpoint());
  return AwaitWriters();
}

absl::Status Trainer::SaveFinal() {
  RETURN_IF_ERROR(SaveAndWait());
  if (!options_.checkpoints.has_value() || saved_step_ == step_ ||
      spec_.checkpoint().final() == "optional") {
    return absl::OkStatus();
  }
  std::string message;
  if (is_first()) {
    const std::string last =
        newest_.has_value() ? options_.checkpoints->FolderPath(newest_->name) : "";
    message = absl::StrCat(
        "node ", options_.node_name, " could not write the final checkpoint of step ", step_,
        " to ", options_.checkpoints->path(), ": ", write_error_.message(), "; ",
        !last.empty() && ReadState(last).ok() ? absl::StrCat("the last good checkpoint is ", last)
                                              : "there is no earlier checkpoint");
  }
  // All ranks report the reason: any of their reports may be the first one that arrives.
  RETURN_IF_ERROR(BroadcastBytes(world_, /*root=*/0, message));
  return WithExitCode(absl::FailedPreconditionError(message), kExitCannotCreate);
}

absl::Status Trainer::CheckStop() const {
  if (!requests_.stop_requested()) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("stopped after step ", step_, " as requested"));
}

void Trainer::FinishWriting() {
  while (writer_.busy()) {
    writer_.AwaitProgress(absl::InfiniteDuration());
    PollWriter();
  }
}

}  // namespace muster::train
