#include "coordinator/service/relay/send_log_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc/status.h"
#include "common/limits.h"
#include "common/status.h"

namespace muster::service {

SendLogCall* SendLogCall::Start(grpc::CallbackServerContext* context, LogRelay& logs) {
  std::shared_ptr<SendLogCall> call(new SendLogCall(context, logs));
  absl::MutexLock lock(&call->mutex_);
  call->self_ = call;
  call->StartRead(&call->incoming_);
  return call.get();
}

void SendLogCall::Next() {
  absl::MutexLock lock(&mutex_);
  if (!finished_) StartRead(&incoming_);
}

void SendLogCall::Stop(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  if (finished_) return;
  finished_ = true;
  Finish(ToGrpcStatus(status));
}

void SendLogCall::End(absl::Status status) {
  if (id_.has_value()) logs_.End(*id_, std::move(status));
}

void SendLogCall::OnReadDone(bool ok) {
  if (!ok) {
    // A half-close means that the log is complete; a broken stream does not.
    const bool broken = context_->IsCancelled();
    End(broken ? absl::UnavailableError("the stream from the node that has the log broke")
               : absl::OkStatus());
    Stop(id_.has_value() ? absl::OkStatus()
                         : absl::InvalidArgumentError("the stream does not name a transfer"));
    return;
  }
  const absl::Status status = Forward();
  if (status.ok()) return;
  End(absl::InternalError(absl::StrCat("the node sent an invalid log stream: ", status.message())));
  Stop(status);
}

absl::Status SendLogCall::Forward() {
  if (!id_.has_value()) {
    const TransferId id(incoming_.transfer());
    RETURN_IF_ERROR(logs_.Attach(id, shared_from_this()));
    id_ = id;
  }
  if (!incoming_.has_chunk()) {
    Next();
    return absl::OkStatus();
  }
  if (incoming_.chunk().data().size() > limits::kLogChunkBytes) {
    return absl::InvalidArgumentError(absl::StrCat("chunk has ", incoming_.chunk().data().size(),
                                                   " bytes; the limit is ",
                                                   limits::kLogChunkBytes));
  }
  if (static_cast<size_t>(incoming_.chunk().lines_size()) > incoming_.chunk().data().size()) {
    return absl::InvalidArgumentError(absl::StrCat("chunk has ", incoming_.chunk().lines_size(),
                                                   " lines in ", incoming_.chunk().data().size(),
                                                   " bytes"));
  }
  v1::LogChunk chunk = std::move(*incoming_.mutable_chunk());
  incoming_.Clear();
  logs_.Chunk(*id_, std::move(chunk));
  return absl::OkStatus();
}

void SendLogCall::OnCancel() {
  // While a read is in progress, its completion does the same; this covers a stream that waits for
  // its reader.
  Stop(absl::CancelledError("the stream was cancelled"));
}

void SendLogCall::OnDone() {
  End(absl::UnavailableError("the stream from the node that has the log broke"));
  std::shared_ptr<SendLogCall> self;
  absl::MutexLock lock(&mutex_);
  self.swap(self_);
}

}  // namespace muster::service
