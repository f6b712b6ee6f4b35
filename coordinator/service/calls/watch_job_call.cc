#include "coordinator/service/calls/watch_job_call.h"

#include <utility>

#include "common/grpc/status.h"
#include "coordinator/core/owners/visibility.h"

namespace muster::service {
namespace {

// The memory of a job and of its serialized form, which gRPC keeps until the client reads it.
size_t MemoryOf(const v1::Job* job) {
  return job == nullptr ? 0 : job->SpaceUsedLong() + job->ByteSizeLong();
}

}  // namespace

WatchJobCall* WatchJobCall::Start(AdmittedCaller caller, std::string job, CoreLoop& loop,
                                  JobWatchers& watchers) {
  std::shared_ptr<WatchJobCall> call(new WatchJobCall(std::move(caller), watchers));
  {
    absl::MutexLock lock(&call->mutex_);
    call->self_ = call;
  }
  WatchJobCall* const reactor = call.get();
  auto watch = [call, job = std::move(job)](core::Core& core, const Time& now) {
    return call->Watch(job, core, now);
  };
  if (!loop.PushQuery(std::move(watch))) reactor->OnShutdown();
  return reactor;
}

Release WatchJobCall::Watch(const std::string& name, core::Core& core, const Time& now) {
  const auto end = [this](absl::Status status) -> Release {
    return [self = shared_from_this(), status = std::move(status)] { self->End(status); };
  };
  const absl::StatusOr<JobId> id = core.ResolveJob(name);
  if (!id.ok()) return end(id.status());
  absl::StatusOr<v1::Job> job = core.GetJob(*id, /*detailed=*/false, now);
  if (!job.ok()) return end(job.status());
  {
    absl::MutexLock lock(&mutex_);
    if (finished_) return nullptr;
    const absl::Status added = watchers_.Add(*id, shared_from_this());
    if (!added.ok()) return end(added);
    // From now on, the end of the call removes the watcher.
    job_id_ = *id;
  }
  return [self = shared_from_this(), job = std::make_shared<const v1::Job>(*std::move(job))] {
    self->OnJob(job);
  };
}

void WatchJobCall::OnJob(std::shared_ptr<const v1::Job> job) {
  absl::MutexLock lock(&mutex_);
  if (ending_) return;
  newest_ = core::VisibleTo(caller_.actor, std::move(job));
  if (IsTerminal(newest_->state())) ending_ = true;
  if (!CountUnread()) {
    newest_ = nullptr;
    ending_ = true;
    end_status_ = absl::UnavailableError(
        "the clients of watches have left too many states of jobs unread; watch fewer jobs at the "
        "same time, or read faster");
  }
  Proceed();
}

bool WatchJobCall::CountUnread() {
  const size_t bytes = MemoryOf(newest_.get()) + MemoryOf(writing_.get());
  if (!watchers_.CountUnread(caller_.actor.name, unread_bytes_, bytes)) return false;
  unread_bytes_ = bytes;
  return true;
}

void WatchJobCall::OnShutdown() { End(absl::UnavailableError("the coordinator is shutting down")); }

void WatchJobCall::End(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  if (finished_) return;
  ending_ = true;
  end_status_ = std::move(status);
  newest_ = nullptr;
  Proceed();
}

void WatchJobCall::Proceed() {
  if (writing_ != nullptr || finished_) return;
  if (newest_ != nullptr) {
    writing_ = std::move(newest_);
    newest_ = nullptr;
    StartWrite(writing_.get());
  } else if (ending_) {
    finished_ = true;
    if (!job_id_.value().empty()) watchers_.Remove(job_id_, this);
    Finish(ToGrpcStatus(end_status_));
  }
}

void WatchJobCall::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = nullptr;
  if (!ok) {
    ending_ = true;
    newest_ = nullptr;
  }
  CountUnread();
  Proceed();
}

void WatchJobCall::OnCancel() { End(absl::CancelledError("the watch was cancelled")); }

void WatchJobCall::OnDone() {
  std::shared_ptr<WatchJobCall> self;
  absl::MutexLock lock(&mutex_);
  newest_ = writing_ = nullptr;
  CountUnread();
  self.swap(self_);
}

}  // namespace muster::service
