#include "coordinator/service/serve_exec_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "coordinator/service/validate.h"

namespace muster::service {

ServeExecCall* ServeExecCall::Start(grpc::CallbackServerContext* context,
                                    TransferTable<v1::ExecOutput>& transfers) {
  std::shared_ptr<ServeExecCall> call(new ServeExecCall(context, transfers));
  absl::MutexLock lock(&call->mutex_);
  call->self_ = call;
  call->StartRead(&call->incoming_);
  return call.get();
}

void ServeExecCall::Send(v1::ExecInput input) {
  absl::MutexLock lock(&mutex_);
  writer_.Write(std::move(input));
}

void ServeExecCall::NextOutput() {
  absl::MutexLock lock(&mutex_);
  if (!writer_.ending()) StartRead(&incoming_);
}

void ServeExecCall::Stop(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  writer_.End(std::move(status));
}

void ServeExecCall::OnReadDone(bool ok) {
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
  // A half-close means that the command has ended; a broken stream does not.
  if (context_->IsCancelled()) {
    transfers_.Break(*id_);
  } else {
    transfers_.End(*id_, absl::OkStatus());
  }
}

absl::Status ServeExecCall::Forward() {
  v1::ServeExecRequest request = std::move(incoming_);
  incoming_.Clear();
  if (!id_.has_value()) {
    const TransferId id(request.transfer());
    id_ = id;
    const absl::Status attached = transfers_.Attach(id, shared_from_this());
    if (!attached.ok()) {
      id_.reset();
      return attached;
    }
  }
  if (!request.has_output()) {
    NextOutput();
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(ValidateExecOutput(request.output()));
  transfers_.DeliverOutput(*id_, std::move(*request.mutable_output()));
  return absl::OkStatus();
}

void ServeExecCall::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    if (!writer_.OnWriteDone(ok)) return;
  }
  transfers_.InputAccepted(*id_);
}

void ServeExecCall::OnCancel() { Stop(absl::CancelledError("the stream was cancelled")); }

void ServeExecCall::OnDone() {
  // No effect on a transfer that has ended.
  if (id_.has_value()) transfers_.Break(*id_);
  std::shared_ptr<ServeExecCall> self;
  absl::MutexLock lock(&mutex_);
  self.swap(self_);
}

}  // namespace muster::service
