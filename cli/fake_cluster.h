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
