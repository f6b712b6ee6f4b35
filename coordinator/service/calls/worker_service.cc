#include "coordinator/service/calls/worker_service.h"

#include <optional>
#include <utility>

#include "coordinator/service/auth/caller.h"
#include "coordinator/service/calls/session_call.h"
#include "coordinator/service/relay/send_files_call.h"
#include "coordinator/service/relay/send_log_call.h"
#include "coordinator/service/relay/serve_exec_call.h"

namespace muster::service {

grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* WorkerServiceImpl::Session(
    grpc::CallbackServerContext* context) {
  return SessionCall::Start(context, loop_, sessions_, logs_, transfers_);
}

grpc::ServerReadReactor<v1::SendLogRequest>* WorkerServiceImpl::SendLog(
    grpc::CallbackServerContext* context, v1::SendLogResponse* /*response*/) {
  return SendLogCall::Start(context, logs_);
}

grpc::ServerWriteReactor<v1::FetchFileResponse>* WorkerServiceImpl::FetchFile(
    grpc::CallbackServerContext* context, const v1::FetchFileRequest* request) {
  const std::optional<security::NodeCertificate> certificate = CallerOf(*context).node();
  std::optional<NodeName> node;
  if (certificate.has_value()) node = NodeName(certificate->node);
  return StartFetchFile(files_, loop_, std::move(node), *request);
}

grpc::ServerBidiReactor<v1::ServeExecRequest, v1::ExecInput>* WorkerServiceImpl::ServeExec(
    grpc::CallbackServerContext* context) {
  return ServeExecCall::Start(new ServeExecCall(context, transfers_.exec));
}

grpc::ServerReadReactor<v1::SendFilesRequest>* WorkerServiceImpl::SendFiles(
    grpc::CallbackServerContext* context, v1::SendFilesResponse* /*response*/) {
  return SendFilesCall::Start(new SendFilesCall(context, transfers_.files));
}

}  // namespace muster::service
