// WorkerService over gRPC's callback API: the messages of a session become core events, one at a
// time per session.
#ifndef MUSTER_COORDINATOR_SERVICE_CALLS_WORKER_SERVICE_H_
#define MUSTER_COORDINATOR_SERVICE_CALLS_WORKER_SERVICE_H_

#include "coordinator/service/loop/core_loop.h"
#include "coordinator/service/loop/worker_sessions.h"
#include "coordinator/service/relay/file_calls.h"
#include "coordinator/service/relay/log_relay.h"
#include "coordinator/service/relay/transfers.h"
#include "proto/muster/v1/worker.grpc.pb.h"

namespace muster::service {

// All referenced objects must outlive the server with which this service is registered.
class WorkerServiceImpl : public v1::WorkerService::CallbackService {
 public:
  WorkerServiceImpl(CoreLoop& loop, WorkerSessions& sessions, LogRelay& logs, FileAccess& files,
                    Transfers& transfers)
      : loop_(loop), sessions_(sessions), logs_(logs), files_(files), transfers_(transfers) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::ServerReadReactor<v1::SendLogRequest>* SendLog(grpc::CallbackServerContext* context,
                                                       v1::SendLogResponse* response) override;
  grpc::ServerWriteReactor<v1::FetchFileResponse>* FetchFile(
      grpc::CallbackServerContext* context, const v1::FetchFileRequest* request) override;
  grpc::ServerBidiReactor<v1::ServeExecRequest, v1::ExecInput>* ServeExec(
      grpc::CallbackServerContext* context) override;
  grpc::ServerReadReactor<v1::SendFilesRequest>* SendFiles(
      grpc::CallbackServerContext* context, v1::SendFilesResponse* response) override;

 private:
  CoreLoop& loop_;
  WorkerSessions& sessions_;
  LogRelay& logs_;
  FileAccess& files_;
  Transfers& transfers_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_CALLS_WORKER_SERVICE_H_
