#include "coordinator/service/relay/exec_call.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/service/checks/validate.h"

namespace muster::service {

ExecCall* ExecCall::Start(absl::StatusOr<AdmittedCaller> caller, CoreLoop& loop,
                          TransferTable<v1::ExecOutput>& transfers) {
  const absl::Status status = caller.status();
  std::shared_ptr<ExecCall> call(
      new ExecCall(caller.ok() ? *std::move(caller) : AdmittedCaller(), loop, transfers));
  call->Own();
  if (status.ok()) {
    call->StartRead(&call->incoming_);
  } else {
    call->End(status);
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
  const absl::Status status = started ? ValidateExecInput(incoming_) : ReadStart();
  if (!status.ok()) return End(status);
  if (started) Forward(std::move(incoming_));
}

absl::Status ExecCall::ReadStart() {
  RETURN_IF_ERROR(ValidateExecStart(incoming_));
  start_ = std::move(*incoming_.mutable_start());
  return Begin();
}

absl::StatusOr<ExecCall::Location> ExecCall::Locate(const core::Core& core, const Time& now) {
  ASSIGN_OR_RETURN(const v1::Job job, FindJob(core, start_.job_id(), now));
  if (!core::IsActive(job.state())) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job.job_id(), " is ",
                                                      v1::JobState_Name(job.state()),
                                                      "; a command needs a running rank"));
  }
  ASSIGN_OR_RETURN(Location location,
                   core.FindRank(JobId(job.job_id()), Generation(0), Rank(start_.rank())));
  if (location.over) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", start_.rank(), " of job ", job.job_id(), " has exited"));
  }
  start_.set_job_id(job.job_id());
  return location;
}

v1::CoordinatorMessage ExecCall::Request(TransferId id, const Location& location) {
  v1::CoordinatorMessage message;
  v1::OpenExec& open = *message.mutable_open_exec();
  open.set_transfer(id.value());
  open.set_job_id(start_.job_id());
  open.set_generation(location.generation.value());
  *open.mutable_start() = start_;
  return message;
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

void ExecCall::OnEnd(absl::Status status) {
  {
    absl::MutexLock lock(&mutex_);
    if (status.ok() && !exited_) {
      status = absl::UnavailableError("the node closed the stream before the command's end");
    }
  }
  TransferCall::OnEnd(std::move(status));
}

}  // namespace muster::service
