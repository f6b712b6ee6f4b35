#include "coordinator/service/read_files_call.h"

#include <string>
#include <utility>

#include "common/status.h"

namespace muster::service {

ReadFilesCall* ReadFilesCall::Start(absl::StatusOr<core::Actor> actor,
                                    const v1::ReadFilesRequest& request, CoreLoop& loop,
                                    TransferTable<v1::ArchiveChunk>& transfers) {
  const absl::Status status = actor.status();
  std::shared_ptr<ReadFilesCall> call(
      new ReadFilesCall(actor.ok() ? *std::move(actor) : core::Actor(), request, transfers));
  {
    absl::MutexLock lock(&call->mutex_);
    call->self_ = call;
  }
  auto locate = [call](core::Core& core, const Time& now) { return call->Locate(core, now); };
  if (!status.ok()) {
    call->End(status);
  } else if (!loop.PushQuery(std::move(locate))) {
    call->End(absl::UnavailableError("the coordinator is shutting down"));
  }
  return call.get();
}

Release ReadFilesCall::Locate(core::Core& core, const Time& now) {
  const auto locate = [&]() -> absl::StatusOr<core::Core::RankLocation> {
    v1::ReadFilesRequest& request = *open_.mutable_request();
    ASSIGN_OR_RETURN(const JobId id, core.ResolveJob(request.job_id()));
    ASSIGN_OR_RETURN(const v1::Job job, core.GetJob(id, /*detailed=*/false, now));
    RETURN_IF_ERROR(core::CheckOwner(job, actor_));
    ASSIGN_OR_RETURN(const auto location,
                     core.FindRank(id, Generation(request.generation()), Rank(request.rank())));
    request.set_job_id(id.value());
    request.set_generation(location.generation.value());
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

void ReadFilesCall::Transfer(const core::Core::RankLocation& location) {
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
  *message.mutable_open_files() = open_;
  message.mutable_open_files()->set_transfer(id.value());
  transfers_.Start(id, std::move(message));
}

void ReadFilesCall::OnOutput(v1::ArchiveChunk chunk) {
  absl::MutexLock lock(&mutex_);
  writer_.Write(std::move(chunk));
}

void ReadFilesCall::OnWriteDone(bool ok) {
  std::optional<TransferId> transfer;
  {
    absl::MutexLock lock(&mutex_);
    if (!writer_.OnWriteDone(ok)) return;
    transfer = transfer_;
  }
  if (transfer.has_value()) transfers_.NextOutput(*transfer);
}

void ReadFilesCall::OnEnd(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  transfer_.reset();
  writer_.End(std::move(status));
}

void ReadFilesCall::OnCancel() { End(absl::CancelledError("the client has disconnected")); }

void ReadFilesCall::End(absl::Status status) {
  std::optional<TransferId> transfer;
  {
    absl::MutexLock lock(&mutex_);
    if (!writer_.End(std::move(status))) return;
    transfer = std::exchange(transfer_, std::nullopt);
  }
  if (transfer.has_value()) transfers_.Cancel(*transfer);
}

void ReadFilesCall::OnDone() {
  std::shared_ptr<ReadFilesCall> self;
  absl::MutexLock lock(&mutex_);
  self.swap(self_);
}

}  // namespace muster::service
