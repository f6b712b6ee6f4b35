#include "coordinator/service/relay/serve_exec_call.h"

#include "common/status.h"
#include "coordinator/service/checks/validate.h"

namespace muster::service {

void ServeExecCall::Send(v1::ExecInput input) {
  absl::MutexLock lock(&mutex_);
  writer_.Write(std::move(input));
}

void ServeExecCall::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    if (!writer_.OnWriteDone(ok)) return;
  }
  ReportInputAccepted();
}

absl::StatusOr<std::optional<v1::ExecOutput>> ServeExecCall::TakeOutput(
    v1::ServeExecRequest& request) {
  if (!request.has_output()) return std::nullopt;
  RETURN_IF_ERROR(ValidateExecOutput(request.output()));
  return std::move(*request.mutable_output());
}

}  // namespace muster::service
