#include "coordinator/service/calls/session_call.h"

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc/status.h"
#include "common/limits.h"
#include "common/status.h"
#include "coordinator/service/auth/caller.h"
#include "coordinator/service/checks/quarantine.h"
#include "coordinator/service/checks/validate.h"

namespace muster::service {
namespace {

// The status that a worker reports. Its code comes from the wire: OK and unknown codes are not
// passed on.
template <typename Report>
absl::Status StatusIn(const Report& report) {
  const absl::Status status(static_cast<absl::StatusCode>(report.code()), report.message());
  if (!status.ok() && status.code() != absl::StatusCode::kUnknown) return status;
  return absl::UnknownError(report.message());
}

}  // namespace

SessionCall::SessionCall(grpc::CallbackServerContext* context, CoreLoop& loop,
                         WorkerSessions& sessions, LogRelay& logs, Transfers& transfers)
    : context_(context),
      loop_(loop),
      sessions_(sessions),
      logs_(logs),
      transfers_(transfers),
      peer_(context->peer()),
      node_name_(peer_) {}

SessionCall* SessionCall::Start(grpc::CallbackServerContext* context, CoreLoop& loop,
                                WorkerSessions& sessions, LogRelay& logs, Transfers& transfers) {
  std::shared_ptr<SessionCall> call(new SessionCall(context, loop, sessions, logs, transfers));
  absl::MutexLock lock(&call->mutex_);
  call->self_ = call;
  call->StartRead(&call->incoming_);
  return call.get();
}

void SessionCall::ReadOn() {
  absl::MutexLock lock(&mutex_);
  if (!finished_) StartRead(&incoming_);
}

void SessionCall::OnReadDone(bool ok) {
  if (!ok) {
    Ended();
    Close(absl::OkStatus());
    return;
  }
  std::optional<SessionId> id;
  {
    absl::MutexLock lock(&mutex_);
    id = id_;
  }
  const absl::Status status = id.has_value() ? Forward(*id) : Open();
  if (status.ok()) return;
  {
    absl::MutexLock lock(&mutex_);
    LOG(WARNING) << "worker " << node_name_ << ": session refused: " << status.message();
  }
  Ended();
  Close(status);
}

absl::Status SessionCall::Open() {
  if (!incoming_.has_hello()) {
    return absl::InvalidArgumentError("the first message of the session is not Hello");
  }
  RETURN_IF_ERROR(ValidateHello(incoming_.hello()));
  Corrections corrections = Quarantine(*incoming_.mutable_hello());
  ASSIGN_OR_RETURN(const SessionId id, sessions_.Add(shared_from_this()));
  const std::string node_name = incoming_.hello().node_name();
  core::SessionOpened opened{id, std::move(*incoming_.mutable_hello()), PeerHost(peer_),
                             std::move(corrections), CallerOf(*context_).node()};
  incoming_.Clear();
  // Holds the lock, so that neither the next message nor the end of the session can reach the core
  // first.
  absl::MutexLock lock(&mutex_);
  if (!loop_.Push(std::move(opened), [self = shared_from_this()] { self->ReadOn(); })) {
    sessions_.Remove(id);
    return absl::UnavailableError("the coordinator is shutting down");
  }
  id_ = id;
  node_name_ = node_name;
  LOG(INFO) << "worker " << node_name_ << " opened a session from " << peer_;
  return absl::OkStatus();
}

absl::Status SessionCall::Forward(SessionId id) {
  Quarantined quarantined = Quarantine(incoming_);
  if (quarantined.refusal.has_value()) Send(*std::move(quarantined.refusal));
  if (incoming_.has_log_unavailable()) {
    const v1::LogUnavailable& report = incoming_.log_unavailable();
    logs_.Unavailable(id, TransferId(report.transfer()), StatusIn(report));
  } else if (incoming_.has_transfer_unavailable()) {
    const v1::TransferUnavailable& report = incoming_.transfer_unavailable();
    transfers_.Unavailable(id, TransferId(report.transfer()), StatusIn(report));
  }
  core::SessionMessage message{id, std::move(incoming_), std::move(quarantined.corrections)};
  incoming_.Clear();
  if (!loop_.Push(std::move(message), [self = shared_from_this()] { self->ReadOn(); })) {
    return absl::UnavailableError("the coordinator is shutting down");
  }
  return absl::OkStatus();
}

void SessionCall::Send(v1::CoordinatorMessage message) {
  absl::MutexLock lock(&mutex_);
  if (finished_ || closing_.has_value()) return;
  SetOutgoingBytes(outgoing_bytes_ + message.ByteSizeLong());
  if (outgoing_bytes_ > limits::kSessionQueueBytes) return CloseUnreadLocked();
  outgoing_.push_back(std::move(message));
  if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
}

size_t SessionCall::unread_bytes() {
  absl::MutexLock lock(&mutex_);
  return finished_ || closing_.has_value() ? 0 : outgoing_bytes_;
}

void SessionCall::CloseUnread() {
  absl::MutexLock lock(&mutex_);
  CloseUnreadLocked();
}

void SessionCall::CloseUnreadLocked() {
  LOG(WARNING) << "worker " << node_name_ << ": closing the session because " << outgoing_bytes_
               << " bytes of it are unread; the limit is " << limits::kSessionQueueBytes
               << ", or less if much is unread in all sessions";
  FinishWhenWritten(absl::ResourceExhaustedError(
      absl::StrCat("the worker left ", outgoing_bytes_, " bytes of the session unread")));
  // A worker that does not read would not read the status either.
  context_->TryCancel();
}

void SessionCall::SetOutgoingBytes(size_t bytes) {
  sessions_.CountUnread(outgoing_bytes_, bytes);
  outgoing_bytes_ = bytes;
}

void SessionCall::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  SetOutgoingBytes(outgoing_bytes_ - outgoing_.front().ByteSizeLong());
  outgoing_.pop_front();
  if (finished_) return;
  if (closing_.has_value()) {
    finished_ = true;
    Finish(ToGrpcStatus(*closing_));
  } else if (!outgoing_.empty() && ok) {
    StartWrite(&outgoing_.front());
  } else if (!ok) {
    // The stream is broken; the read in progress fails as well.
    outgoing_.clear();
    SetOutgoingBytes(0);
  }
}

void SessionCall::Close(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  FinishWhenWritten(std::move(status));
}

void SessionCall::FinishWhenWritten(absl::Status status) {
  if (finished_ || closing_.has_value()) return;
  if (outgoing_.empty()) {
    SetOutgoingBytes(0);
    finished_ = true;
    Finish(ToGrpcStatus(status));
    return;
  }
  closing_ = std::move(status);
  while (outgoing_.size() > 1) outgoing_.pop_back();
  SetOutgoingBytes(outgoing_.front().ByteSizeLong());
}

void SessionCall::OnCancel() {
  Ended();
  Close(absl::CancelledError("the session was cancelled"));
}

void SessionCall::Ended() {
  SessionId id;
  {
    absl::MutexLock lock(&mutex_);
    if (ended_ || !id_.has_value()) return;
    ended_ = true;
    id = *id_;
    LOG(INFO) << "worker " << node_name_ << ": session ended";
  }
  sessions_.Remove(id);
  logs_.SessionEnded(id);
  transfers_.SessionEnded(id);
  loop_.Push(core::SessionClosed{id});
}

void SessionCall::OnDone() {
  Ended();
  std::shared_ptr<SessionCall> self;
  absl::MutexLock lock(&mutex_);
  SetOutgoingBytes(0);
  self.swap(self_);
}

}  // namespace muster::service
