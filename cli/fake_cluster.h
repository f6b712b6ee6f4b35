// A gRPC server with scripted responses, for tests of the command line.
#ifndef MUSTER_CLI_FAKE_CLUSTER_H_
#define MUSTER_CLI_FAKE_CLUSTER_H_

#include <functional>
#include <memory>
#include <string>

#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/cluster.grpc.pb.h"

namespace muster::cli {

// Calls without a script return UNIMPLEMENTED. Scripts are set before Start and run on gRPC's
// threads.
class FakeCluster : public v1::ClusterService::Service {
 public:
  template <typename Message>
  using Writer =
      std::function<bool(const Message&)>;  // returns false once the client has disconnected

  std::function<grpc::Status(const v1::SubmitJobRequest&, v1::SubmitJobResponse*)> on_submit;
  std::function<grpc::Status(const v1::GetJobRequest&, v1::Job*)> on_get;
  std::function<grpc::Status(const v1::ListJobsRequest&, v1::ListJobsResponse*)> on_list;
  std::function<grpc::Status(const v1::ListEventsRequest&, v1::ListEventsResponse*)> on_list_events;
  std::function<grpc::Status(const v1::GetArrayRequest&, v1::GetArrayResponse*)> on_get_array;
  std::function<grpc::Status(const v1::SetSecretRequest&)> on_set_secret;
  std::function<grpc::Status(const v1::GetQueueRequest&, v1::GetQueueResponse*)> on_get_queue;
  std::function<grpc::Status(const v1::GetJobHistoryRequest&, v1::JobHistory*)> on_get_history;
  std::function<grpc::Status(const v1::GetReportRequest&, v1::GetReportResponse*)> on_get_report;
  std::function<grpc::Status(const v1::CancelJobRequest&, v1::Job*)> on_cancel;
  std::function<grpc::Status(const v1::CancelArrayRequest&, v1::JobArray*)> on_cancel_array;
  std::function<grpc::Status(const v1::ListSecretsRequest&, v1::ListSecretsResponse*)>
      on_list_secrets;
  std::function<grpc::Status(const v1::ListNodesRequest&, v1::ListNodesResponse*)> on_list_nodes;
  std::function<grpc::Status(const v1::GetNodeRequest&, v1::Node*)> on_get_node;
  std::function<grpc::Status(const v1::TestNodeRequest&, v1::Node*)> on_test_node;
  std::function<grpc::Status(const v1::DrainNodeRequest&, v1::Node*)> on_drain;
  std::function<grpc::Status(const v1::WatchJobRequest&, grpc::ServerContext&, Writer<v1::Job>)>
      on_watch;
  std::function<grpc::Status(const v1::ReadLogRequest&, grpc::ServerContext&, Writer<v1::LogChunk>)>
      on_log;
  std::function<grpc::Status(const v1::FindMissingFilesRequest&, v1::FindMissingFilesResponse*)>
      on_find_missing;
  // Called with the announced digest and the complete content.
  std::function<grpc::Status(const std::string&, const std::string&)> on_upload;

  // Returns when the client has cancelled or disconnected, for scripts that keep their client
  // waiting. Polls, because a synchronous gRPC handler cannot be woken.
  static void WaitUntilCancelled(const grpc::ServerContext& context);

  ~FakeCluster() override;
  // Listens on a free port of loopback; after Stop, on the same port again.
  void Start();
  // Aborts open calls, as if the process died.
  void Stop();
  std::string address() const;

  grpc::Status SubmitJob(grpc::ServerContext* context, const v1::SubmitJobRequest* request,
                         v1::SubmitJobResponse* response) override;
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::Job* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status ListEvents(grpc::ServerContext* context, const v1::ListEventsRequest* request,
                          v1::ListEventsResponse* response) override;
  grpc::Status GetArray(grpc::ServerContext* context, const v1::GetArrayRequest* request,
                        v1::GetArrayResponse* response) override;
  grpc::Status SetSecret(grpc::ServerContext* context, const v1::SetSecretRequest* request,
                         v1::SetSecretResponse* response) override;
  grpc::Status GetQueue(grpc::ServerContext* context, const v1::GetQueueRequest* request,
                        v1::GetQueueResponse* response) override;
  grpc::Status GetJobHistory(grpc::ServerContext* context, const v1::GetJobHistoryRequest* request,
                             v1::JobHistory* response) override;
  grpc::Status GetReport(grpc::ServerContext* context, const v1::GetReportRequest* request,
                         v1::GetReportResponse* response) override;
  grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest* request,
                         v1::Job* response) override;
  grpc::Status CancelArray(grpc::ServerContext* context, const v1::CancelArrayRequest* request,
                           v1::JobArray* response) override;
  grpc::Status ListSecrets(grpc::ServerContext* context, const v1::ListSecretsRequest* request,
                           v1::ListSecretsResponse* response) override;
  grpc::Status ListNodes(grpc::ServerContext* context, const v1::ListNodesRequest* request,
                         v1::ListNodesResponse* response) override;
  grpc::Status GetNode(grpc::ServerContext* context, const v1::GetNodeRequest* request,
                       v1::Node* response) override;
  grpc::Status TestNode(grpc::ServerContext* context, const v1::TestNodeRequest* request,
                        v1::Node* response) override;
  grpc::Status DrainNode(grpc::ServerContext* context, const v1::DrainNodeRequest* request,
                         v1::Node* response) override;
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::Job>* writer) override;
  grpc::Status ReadLog(grpc::ServerContext* context, const v1::ReadLogRequest* request,
                       grpc::ServerWriter<v1::LogChunk>* writer) override;
  grpc::Status FindMissingFiles(grpc::ServerContext* context,
                                const v1::FindMissingFilesRequest* request,
                                v1::FindMissingFilesResponse* response) override;
  grpc::Status UploadFile(grpc::ServerContext* context,
                          grpc::ServerReader<v1::UploadFileRequest>* reader,
                          v1::UploadFileResponse* response) override;
  grpc::Status GetVersion(grpc::ServerContext* context, const v1::GetVersionRequest* request,
                          v1::GetVersionResponse* response) override;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_FAKE_CLUSTER_H_
