#include "coordinator/service/relay/read_log_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc/status.h"
#include "coordinator/service/relay/log_tail_chunk.h"

namespace muster::service {
namespace {

absl::Status ShuttingDown() { return absl::UnavailableError("the coordinator is shutting down"); }

}  // namespace

ReadLogCall::ReadLogCall(AdmittedCaller caller, const v1::ReadLogRequest& request, CoreLoop& loop,
                         JobWatchers& watchers, LogRelay& logs)
    : caller_(std::move(caller)),
      loop_(loop),
      watchers_(watchers),
      logs_(logs),
      request_(request) {}

ReadLogCall* ReadLogCall::Start(AdmittedCaller caller, const v1::ReadLogRequest& request,
                                CoreLoop& loop, JobWatchers& watchers, LogRelay& logs) {
  std::shared_ptr<ReadLogCall> call(
      new ReadLogCall(std::move(caller), request, loop, watchers, logs));
  {
    absl::MutexLock lock(&call->mutex_);
    call->self_ = call;
  }
  call->Find();
  return call.get();
}

void ReadLogCall::Find() {
  auto locate = [self = shared_from_this()](core::Core& core, const Time& now) {
    return self->Locate(core, now);
  };
  if (!loop_.PushQuery(std::move(locate))) End(ShuttingDown());
}

Release ReadLogCall::Locate(core::Core& core, const Time& now) {
  const auto end = [this](absl::Status status) -> Release {
    return [self = shared_from_this(), status = std::move(status)] { self->End(status); };
  };
  absl::MutexLock lock(&mutex_);
  if (finished_) return nullptr;
  const absl::StatusOr<JobId> id = core.ResolveJob(request_.job_id());
  if (!id.ok()) return end(id.status());
  request_.set_job_id(id->value());
  const absl::StatusOr<v1::Job> job = core.GetJob(*id, /*detailed=*/false, now);
  if (!job.ok()) return end(job.status());
  const absl::Status owned = core::CheckOwner(*job, caller_.actor);
  if (!owned.ok()) return end(owned);
  if (request_.generation() == 0 && job->generation() <= read_generation_) {
    return WaitForGeneration(*job);
  }
  if (!missing_.ok()) return SendTail(core, missing_);
  const auto location =
      core.FindRank(*id, Generation(request_.generation()), Rank(request_.rank()));
  if (AcceptsTailFor(location.status())) return SendTail(core, location.status());
  if (!location.ok()) return end(location.status());
  return [self = shared_from_this(), location = *location] { self->Transfer(location); };
}

bool ReadLogCall::AcceptsTailFor(const absl::Status& status) const {
  return request_.accept_tail() && !Follows() &&
         (absl::IsUnavailable(status) || absl::IsNotFound(status));
}

Release ReadLogCall::SendTail(const core::Core& core, const absl::Status& status) {
  const absl::StatusOr<core::Core::KeptLog> kept = core.FindLogTail(
      JobId(request_.job_id()), Generation(request_.generation()), Rank(request_.rank()));
  if (!kept.ok()) return [self = shared_from_this(), status] { self->End(status); };
  const std::string reason = absl::StrCat(
      "node ", kept->node.value(), missing_.ok() ? " is not connected" : " no longer has the log");
  return [self = shared_from_this(), chunk = LogTailChunk(request_, kept->tail, reason)]() mutable {
    absl::MutexLock lock(&self->mutex_);
    if (self->finished_ || self->end_status_.has_value()) return;
    self->writing_ = std::move(chunk);
    self->write_under_way_ = true;
    self->end_status_ = absl::OkStatus();
    self->StartWrite(&self->writing_);
  };
}

Release ReadLogCall::WaitForGeneration(const v1::Job& job) {
  absl::Status status;
  if (!request_.follow()) {
    status = absl::FailedPreconditionError(
        absl::StrCat("job ", job.job_id(), " has not started: it has no logs yet"));
  } else if (!IsTerminal(job.state())) {
    status = watchers_.Add(JobId(job.job_id()), shared_from_this());
    watching_ = status.ok();
    if (watching_) return nullptr;
  }
  return [self = shared_from_this(), status = std::move(status)] { self->End(status); };
}

void ReadLogCall::OnJob(std::shared_ptr<const v1::Job> job) {
  {
    absl::MutexLock lock(&mutex_);
    if (!watching_ || (job->generation() <= read_generation_ && !IsTerminal(job->state()))) return;
    watching_ = false;
    watchers_.Remove(JobId(job->job_id()), this);
  }
  Find();
}

void ReadLogCall::Transfer(const core::Core::RankLocation& location) {
  TransferId id;
  v1::ReadLogRequest request;
  {
    absl::MutexLock lock(&mutex_);
    if (finished_ || end_status_.has_value()) return;
    const absl::StatusOr<TransferId> opened = logs_.Open(location.session, shared_from_this());
    if (!opened.ok()) {
      FinishLocked(opened.status());
      return;
    }
    id = *opened;
    transfer_ = id;
    drained_ = false;
    read_generation_ = location.generation.value();
    request = request_;
  }
  request.set_generation(location.generation.value());
  logs_.Start(id, request);
}

void ReadLogCall::OnChunk(v1::LogChunk chunk) {
  absl::MutexLock lock(&mutex_);
  if (finished_ || end_status_.has_value() || write_under_way_) return;
  writing_ = std::move(chunk);
  writing_.set_generation(read_generation_);
  drained_ = writing_.end();
  write_under_way_ = true;
  StartWrite(&writing_);
}

void ReadLogCall::OnWriteDone(bool ok) {
  TransferId transfer;
  {
    absl::MutexLock lock(&mutex_);
    write_under_way_ = false;
    if (end_status_.has_value()) {
      FinishLocked(*end_status_);
      return;
    }
    if (!ok || !transfer_.has_value()) return;
    transfer = *transfer_;
  }
  logs_.Next(transfer);
}

void ReadLogCall::OnEnd(absl::Status status) {
  {
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    transfer_.reset();
    if (absl::IsNotFound(status) && AcceptsTailFor(status)) {
      missing_ = std::move(status);
      request_.set_generation(read_generation_);
    } else {
      if (status.ok() && request_.follow() && !drained_) {
        status = absl::UnavailableError("the node closed the log stream early");
      }
      if (!status.ok() || !Follows()) {
        FinishLocked(std::move(status));
        return;
      }
      // Continues with the next generation's log, from its beginning.
      request_.set_offset(0);
      request_.set_tail_lines(0);
    }
  }
  Find();
}

void ReadLogCall::OnShutdown() { End(ShuttingDown()); }

void ReadLogCall::OnCancel() { End(absl::CancelledError("the client stopped reading")); }

void ReadLogCall::End(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  FinishLocked(std::move(status));
}

void ReadLogCall::FinishLocked(absl::Status status) {
  if (finished_) return;
  if (watching_) watchers_.Remove(JobId(request_.job_id()), this);
  watching_ = false;
  if (transfer_.has_value()) logs_.Cancel(*transfer_);
  transfer_.reset();
  if (write_under_way_) {
    if (!end_status_.has_value()) end_status_ = std::move(status);
    return;
  }
  finished_ = true;
  Finish(ToGrpcStatus(status));
}

void ReadLogCall::OnDone() {
  std::shared_ptr<ReadLogCall> self;
  absl::MutexLock lock(&mutex_);
  self.swap(self_);
}

}  // namespace muster::service
