// ClusterService over gRPC's callback API: requests become core events or queries, and no thread
// waits for an answer.
#ifndef MUSTER_COORDINATOR_SERVICE_CALLS_CLUSTER_SERVICE_H_
#define MUSTER_COORDINATOR_SERVICE_CALLS_CLUSTER_SERVICE_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "common/limits.h"
#include "coordinator/service/auth/caller_limit.h"
#include "coordinator/service/calls/core_calls.h"
#include "coordinator/service/http/login/page_logins.h"
#include "coordinator/service/loop/core_loop.h"
#include "coordinator/service/loop/job_watchers.h"
#include "coordinator/service/relay/file_calls.h"
#include "coordinator/service/relay/log_relay.h"
#include "coordinator/service/relay/transfers.h"
#include "proto/muster/v1/cluster.grpc.pb.h"

namespace muster::service {

// All referenced objects must outlive the server with which this service is registered.
class ClusterServiceImpl : public v1::ClusterService::CallbackService {
 public:
  ClusterServiceImpl(CoreLoop& loop, CoreCalls& calls, JobWatchers& watchers, LogRelay& logs,
                     FileAccess& files, Transfers& transfers, PageLogins& page_logins)
      : loop_(loop),
        calls_(calls),
        watchers_(watchers),
        logs_(logs),
        files_(files),
        transfers_(transfers),
        page_logins_(page_logins) {}

  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context,
                                      const v1::SubmitJobRequest* request,
                                      v1::SubmitJobResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request, v1::Job* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerWriteReactor<v1::Job>* WatchJob(grpc::CallbackServerContext* context,
                                              const v1::WatchJobRequest* request) override;
  grpc::ServerUnaryReactor* ListEvents(grpc::CallbackServerContext* context,
                                       const v1::ListEventsRequest* request,
                                       v1::ListEventsResponse* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* HoldJob(grpc::CallbackServerContext* context,
                                    const v1::HoldJobRequest* request, v1::Job* response) override;
  grpc::ServerUnaryReactor* ReleaseJob(grpc::CallbackServerContext* context,
                                       const v1::ReleaseJobRequest* request,
                                       v1::Job* response) override;
  grpc::ServerUnaryReactor* RequeueJob(grpc::CallbackServerContext* context,
                                       const v1::RequeueJobRequest* request,
                                       v1::Job* response) override;
  grpc::ServerUnaryReactor* CheckpointJob(grpc::CallbackServerContext* context,
                                          const v1::CheckpointJobRequest* request,
                                          v1::Job* response) override;
  grpc::ServerUnaryReactor* ShareJob(grpc::CallbackServerContext* context,
                                     const v1::ShareJobRequest* request,
                                     v1::Job* response) override;
  grpc::ServerWriteReactor<v1::LogChunk>* ReadLog(grpc::CallbackServerContext* context,
                                                  const v1::ReadLogRequest* request) override;
  grpc::ServerUnaryReactor* ListNodes(grpc::CallbackServerContext* context,
                                      const v1::ListNodesRequest* request,
                                      v1::ListNodesResponse* response) override;
  grpc::ServerUnaryReactor* GetNode(grpc::CallbackServerContext* context,
                                    const v1::GetNodeRequest* request, v1::Node* response) override;
  grpc::ServerUnaryReactor* CordonNode(grpc::CallbackServerContext* context,
                                       const v1::CordonNodeRequest* request,
                                       v1::Node* response) override;
  grpc::ServerUnaryReactor* UncordonNode(grpc::CallbackServerContext* context,
                                         const v1::UncordonNodeRequest* request,
                                         v1::Node* response) override;
  grpc::ServerUnaryReactor* DrainNode(grpc::CallbackServerContext* context,
                                      const v1::DrainNodeRequest* request,
                                      v1::Node* response) override;
  grpc::ServerUnaryReactor* TestNode(grpc::CallbackServerContext* context,
                                     const v1::TestNodeRequest* request,
                                     v1::Node* response) override;
  grpc::ServerUnaryReactor* FindMissingFiles(grpc::CallbackServerContext* context,
                                             const v1::FindMissingFilesRequest* request,
                                             v1::FindMissingFilesResponse* response) override;
  grpc::ServerReadReactor<v1::UploadFileRequest>* UploadFile(
      grpc::CallbackServerContext* context, v1::UploadFileResponse* response) override;
  grpc::ServerUnaryReactor* RemoveNode(grpc::CallbackServerContext* context,
                                       const v1::RemoveNodeRequest* request,
                                       v1::RemoveNodeResponse* response) override;
  grpc::ServerUnaryReactor* ConfirmNodeLost(grpc::CallbackServerContext* context,
                                            const v1::ConfirmNodeLostRequest* request,
                                            v1::ConfirmNodeLostResponse* response) override;
  grpc::ServerUnaryReactor* RemoveJob(grpc::CallbackServerContext* context,
                                      const v1::RemoveJobRequest* request,
                                      v1::RemoveJobResponse* response) override;
  grpc::ServerBidiReactor<v1::ExecInput, v1::ExecOutput>* Exec(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<v1::ArchiveChunk>* ReadFiles(
      grpc::CallbackServerContext* context, const v1::ReadFilesRequest* request) override;
  grpc::ServerUnaryReactor* RecoverJobs(grpc::CallbackServerContext* context,
                                        const v1::RecoverJobsRequest* request,
                                        v1::RecoverJobsResponse* response) override;
  grpc::ServerUnaryReactor* CreatePageLogin(grpc::CallbackServerContext* context,
                                            const v1::CreatePageLoginRequest* request,
                                            v1::CreatePageLoginResponse* response) override;
  grpc::ServerUnaryReactor* GetJobHistory(grpc::CallbackServerContext* context,
                                          const v1::GetJobHistoryRequest* request,
                                          v1::JobHistory* response) override;
  // queue_methods.cc
  grpc::ServerUnaryReactor* GetQueue(grpc::CallbackServerContext* context,
                                     const v1::GetQueueRequest* request,
                                     v1::GetQueueResponse* response) override;
  // array_methods.cc
  grpc::ServerUnaryReactor* GetArray(grpc::CallbackServerContext* context,
                                     const v1::GetArrayRequest* request,
                                     v1::GetArrayResponse* response) override;
  grpc::ServerUnaryReactor* CancelArray(grpc::CallbackServerContext* context,
                                        const v1::CancelArrayRequest* request,
                                        v1::JobArray* response) override;
  // owner_methods.cc
  grpc::ServerUnaryReactor* GetReport(grpc::CallbackServerContext* context,
                                      const v1::GetReportRequest* request,
                                      v1::GetReportResponse* response) override;
  grpc::ServerUnaryReactor* SetSecret(grpc::CallbackServerContext* context,
                                      const v1::SetSecretRequest* request,
                                      v1::SetSecretResponse* response) override;
  grpc::ServerUnaryReactor* ListSecrets(grpc::CallbackServerContext* context,
                                        const v1::ListSecretsRequest* request,
                                        v1::ListSecretsResponse* response) override;
  grpc::ServerUnaryReactor* GetVersion(grpc::CallbackServerContext* context,
                                       const v1::GetVersionRequest* request,
                                       v1::GetVersionResponse* response) override;

 private:
  // The user of the call, whose stream counts against the limit.
  absl::StatusOr<AdmittedCaller> Admit(const grpc::CallbackServerContext& context,
                                       CallerLimit& limit);
  // Pushes the event if it is valid, and finishes the call with the resulting node.
  grpc::ServerUnaryReactor* ChangeNode(grpc::CallbackServerContext* context,
                                       const absl::Status& valid, core::Event event,
                                       const std::string& node, v1::Node* response);
  // Calls `use` on the file thread with what the actor may use of these files; finishes the call
  // when the coordinator is shutting down.
  using UseFiles = absl::AnyInvocable<void(const files::FileUser&)>;
  void WithFiles(grpc::ServerUnaryReactor* reactor, const core::Actor& actor,
                 absl::flat_hash_set<std::string> digests, UseFiles use);
  // Finishes a dry run with the job's forecast, or the error of its submission.
  void Validate(grpc::ServerUnaryReactor* reactor, core::SubmitJob event,
                v1::SubmitJobResponse* response);
  // Submits the job under a random id, and draws another one while the id is taken.
  void Submit(grpc::ServerUnaryReactor* reactor, core::SubmitJob event,
              v1::SubmitJobResponse* response, int attempts);

  CoreLoop& loop_;
  CoreCalls& calls_;
  JobWatchers& watchers_;
  LogRelay& logs_;
  FileAccess& files_;
  Transfers& transfers_;
  PageLogins& page_logins_;
  CallerLimit watches_{"watches of jobs", limits::kWatchersPerCaller};
  CallerLimit log_streams_{"log streams", limits::kLogTransfersPerCaller};
  CallerLimit uploads_{"uploads", limits::kUploadsPerCaller};
  CallerLimit execs_{"execs", limits::kTransfersPerCaller};
  CallerLimit copies_{"copies of files", limits::kTransfersPerCaller};
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_CALLS_CLUSTER_SERVICE_H_
