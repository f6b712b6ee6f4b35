#include "coordinator/service/exec_call.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/service/validate.h"

namespace muster::service {

ExecCall* ExecCall::Start(absl::StatusOr<core::Actor> actor, CoreLoop& loop,
                          TransferTable<v1::ExecOutput>& transfers) {
  const absl::Status status = actor.status();
  std::shared_ptr<ExecCall> call(
      new ExecCall(actor.ok() ? *std::move(actor) : core::Actor(), loop, transfers));
  absl::MutexLock lock(&call->mutex_);
  call->self_ = call;
  if (status.ok()) {
    call->StartRead(&call->incoming_);
  } else {
    call->writer_.End(status);
  }
  return call.get();
}

void ExecCall::ReadOn() {
  absl::MutexLock lock(&mutex_);
  if (!writer_.ending() && !input_ended_) StartRead(&incoming_);
}

void ExecCall::OnReadDone(bool ok) {
  bool started = false;
  {
    absl::MutexLock lock(&mutex_);
    started = std::exchange(started_, true);
    input_ended_ = !ok;
  }
  if (!ok) {
    // The client sends no more input.
    if (!started) return End(absl::InvalidArgumentError("the stream has no start message"));
    v1::ExecInput end;
    end.set_stdin_end(true);
    Forward(std::move(end));
    return;
  }
  const absl::Status status = started ? ValidateExecInput(incoming_) : Begin();
  if (!status.ok()) return End(status);
  if (started) Forward(std::move(incoming_));
}

absl::Status ExecCall::Begin() {
  RETURN_IF_ERROR(ValidateExecStart(incoming_));
  start_ = std::move(*incoming_.mutable_start());
  auto locate = [self = shared_from_this()](core::Core& core, const Time& now) {
    return self->Locate(core, now);
  };
  if (loop_.PushQuery(std::move(locate))) return absl::OkStatus();
  return absl::UnavailableError("the coordinator is shutting down");
}

Release ExecCall::Locate(core::Core& core, const Time& now) {
  const auto locate = [&]() -> absl::StatusOr<core::Core::RankLocation> {
    ASSIGN_OR_RETURN(const JobId id, core.ResolveJob(start_.job_id()));
    ASSIGN_OR_RETURN(const v1::Job job, core.GetJob(id, /*detailed=*/false, now));
    RETURN_IF_ERROR(core::CheckOwner(job, actor_));
    if (!core::IsActive(job.state())) {
      return absl::FailedPreconditionError(absl::StrCat("job ", id.value(), " is ",
                                                        v1::JobState_Name(job.state()),
                                                        "; a command needs a running rank"));
    }
    ASSIGN_OR_RETURN(const auto location, core.FindRank(id, Generation(0), Rank(start_.rank())));
    if (location.over) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", start_.rank(), " of job ", id.value(), " has exited"));
    }
    start_.set_job_id(id.value());
    return location;
  };
  const absl::StatusOr<core::Core::RankLocation> location = locate();
  return [self = shared_from_this(), location] {
    if (location.ok()) {
      self->Transfer(*location);
    } else {
      self->End(location.status());
    }
  };
}

void ExecCall::Transfer(const core::Core::RankLocation& location) {
  v1::CoordinatorMessage message;
  TransferId id;
  {
    absl::MutexLock lock(&mutex_);
    if (writer_.ending()) return;
    const absl::StatusOr<TransferId> opened =
        transfers_.Open(location.session, location.node.value(), shared_from_this());
    if (!opened.ok()) {
      writer_.End(opened.status());
      return;
    }
    id = *opened;
    transfer_ = id;
  }
  v1::OpenExec& open = *message.mutable_open_exec();
  open.set_transfer(id.value());
  open.set_job_id(start_.job_id());
  open.set_generation(location.generation.value());
  *open.mutable_start() = start_;
  transfers_.Start(id, std::move(message));
}

void ExecCall::Forward(v1::ExecInput input) {
  std::optional<TransferId> transfer;
  {
    absl::MutexLock lock(&mutex_);
    transfer = transfer_;
  }
  if (transfer.has_value()) transfers_.SendInput(*transfer, std::move(input));
}

void ExecCall::OnOutput(v1::ExecOutput output) {
  absl::MutexLock lock(&mutex_);
  exited_ = output.has_exit_code();
  writer_.Write(std::move(output));
}

void ExecCall::OnWriteDone(bool ok) {
  std::optional<TransferId> transfer;
  {
    absl::MutexLock lock(&mutex_);
    if (!writer_.OnWriteDone(ok)) return;
    transfer = transfer_;
  }
  if (transfer.has_value()) transfers_.NextOutput(*transfer);
}

void ExecCall::OnEnd(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  transfer_.reset();
  if (status.ok() && !exited_) {
    status = absl::UnavailableError("the node closed the stream before the command's end");
  }
  writer_.End(std::move(status));
}

void ExecCall::OnCancel() { End(absl::CancelledError("the client has disconnected")); }

void ExecCall::End(absl::Status status) {
  std::optional<TransferId> transfer;
  {
    absl::MutexLock lock(&mutex_);
    if (!writer_.End(std::move(status))) return;
    transfer = std::exchange(transfer_, std::nullopt);
  }
  if (transfer.has_value()) transfers_.Cancel(*transfer);
}

void ExecCall::OnDone() {
  std::shared_ptr<ExecCall> self;
  absl::MutexLock lock(&mutex_);
  self.swap(self_);
}

}  // namespace muster::service
