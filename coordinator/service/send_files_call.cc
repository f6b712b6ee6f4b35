#include "coordinator/service/send_files_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/limits.h"
#include "common/status.h"

namespace muster::service {

SendFilesCall* SendFilesCall::Start(grpc::CallbackServerContext* context,
                                    TransferTable<v1::ArchiveChunk>& transfers) {
  std::shared_ptr<SendFilesCall> call(new SendFilesCall(context, transfers));
  absl::MutexLock lock(&call->mutex_);
  call->self_ = call;
  call->StartRead(&call->incoming_);
  return call.get();
}

void SendFilesCall::NextOutput() {
  absl::MutexLock lock(&mutex_);
  if (!finished_) StartRead(&incoming_);
}

void SendFilesCall::Stop(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  if (std::exchange(finished_, true)) return;
  Finish(ToGrpcStatus(status));
}

void SendFilesCall::OnReadDone(bool ok) {
  if (ok) {
    const absl::Status status = Forward();
    if (status.ok()) return;
    if (id_.has_value()) {
      transfers_.End(*id_, absl::InternalError(absl::StrCat("the node sent an invalid stream: ",
                                                            status.message())));
    }
    return Stop(status);
  }
  if (!id_.has_value()) {
    return Stop(absl::InvalidArgumentError("the stream does not name a transfer"));
  }
  // A half-close means that the archive is complete; a broken stream does not.
  if (context_->IsCancelled()) {
    transfers_.Break(*id_);
  } else {
    transfers_.End(*id_, absl::OkStatus());
  }
}

absl::Status SendFilesCall::Forward() {
  v1::SendFilesRequest request = std::move(incoming_);
  incoming_.Clear();
  if (!id_.has_value()) {
    const TransferId id(request.transfer());
    RETURN_IF_ERROR(transfers_.Attach(id, shared_from_this()));
    id_ = id;
  }
  if (!request.has_chunk()) {
    NextOutput();
    return absl::OkStatus();
  }
  if (request.chunk().data().size() > limits::kLogChunkBytes) {
    return absl::InvalidArgumentError(absl::StrCat("chunk has ", request.chunk().data().size(),
                                                   " bytes; the limit is ",
                                                   limits::kLogChunkBytes));
  }
  transfers_.DeliverOutput(*id_, std::move(*request.mutable_chunk()));
  return absl::OkStatus();
}

void SendFilesCall::OnCancel() { Stop(absl::CancelledError("the stream was cancelled")); }

void SendFilesCall::OnDone() {
  // No effect on a transfer that has ended.
  if (id_.has_value()) transfers_.Break(*id_);
  std::shared_ptr<SendFilesCall> self;
  absl::MutexLock lock(&mutex_);
  self.swap(self_);
}

}  // namespace muster::service
