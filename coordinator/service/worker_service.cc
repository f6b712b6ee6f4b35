#include "coordinator/service/worker_service.h"

#include "coordinator/service/send_log_call.h"
#include "coordinator/service/session_call.h"

namespace muster::service {

grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* WorkerServiceImpl::Session(
    grpc::CallbackServerContext* context) {
  return SessionCall::Start(context, loop_, sessions_, logs_);
}

grpc::ServerReadReactor<v1::SendLogRequest>* WorkerServiceImpl::SendLog(
    grpc::CallbackServerContext* context, v1::SendLogResponse* /*response*/) {
  return SendLogCall::Start(context, logs_);
}

grpc::ServerWriteReactor<v1::FetchFileResponse>* WorkerServiceImpl::FetchFile(
    grpc::CallbackServerContext* /*context*/, const v1::FetchFileRequest* request) {
  return StartFetchFile(files_, *request);
}

}  // namespace muster::service
