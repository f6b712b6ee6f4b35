#include "cli/fake_cluster.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace muster::cli {
namespace {

const grpc::Status kNotScripted(grpc::StatusCode::UNIMPLEMENTED, "not scripted");

}  // namespace

void FakeCluster::WaitUntilCancelled(const grpc::ServerContext& context) {
  while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
}

FakeCluster::~FakeCluster() { Stop(); }

void FakeCluster::Start() {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", port_), grpc::InsecureServerCredentials(),
                           &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

void FakeCluster::Stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

std::string FakeCluster::address() const { return absl::StrCat("127.0.0.1:", port_); }

grpc::Status FakeCluster::SubmitJob(grpc::ServerContext* context,
                                    const v1::SubmitJobRequest* request,
                                    v1::SubmitJobResponse* response) {
  return on_submit ? on_submit(*request, response) : kNotScripted;
}

grpc::Status FakeCluster::GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                                 v1::Job* response) {
  return on_get ? on_get(*request, response) : kNotScripted;
}

grpc::Status FakeCluster::ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                                   v1::ListJobsResponse* response) {
  return on_list ? on_list(*request, response) : kNotScripted;
}

grpc::Status FakeCluster::ListEvents(grpc::ServerContext* context,
                                     const v1::ListEventsRequest* request,
                                     v1::ListEventsResponse* response) {
  return on_list_events ? on_list_events(*request, response) : kNotScripted;
}

grpc::Status FakeCluster::GetArray(grpc::ServerContext* context, const v1::GetArrayRequest* request,
                                   v1::GetArrayResponse* response) {
  return on_get_array ? on_get_array(*request, response) : kNotScripted;
}

grpc::Status FakeCluster::SetSecret(grpc::ServerContext* context,
                                    const v1::SetSecretRequest* request,
                                    v1::SetSecretResponse* response) {
  return on_set_secret ? on_set_secret(*request) : kNotScripted;
}

grpc::Status FakeCluster::GetQueue(grpc::ServerContext* context, const v1::GetQueueRequest* request,
                                   v1::GetQueueResponse* response) {
  return on_get_queue ? on_get_queue(*request, response) : kNotScripted;
}

grpc::Status FakeCluster::GetJobHistory(grpc::ServerContext* context,
                                        const v1::GetJobHistoryRequest* request,
                                        v1::JobHistory* response) {
  return on_get_history ? on_get_history(*request, response) : kNotScripted;
}

grpc::Status FakeCluster::GetReport(grpc::ServerContext* context,
                                    const v1::GetReportRequest* request,
                                    v1::GetReportResponse* response) {
  return on_get_report ? on_get_report(*request, response) : kNotScripted;
}

grpc::Status FakeCluster::CancelJob(grpc::ServerContext* context,
                                    const v1::CancelJobRequest* request, v1::Job* response) {
  return on_cancel ? on_cancel(*request, response) : kNotScripted;
}

grpc::Status FakeCluster::CancelArray(grpc::ServerContext* context,
                                      const v1::CancelArrayRequest* request,
                                      v1::JobArray* response) {
  return on_cancel_array ? on_cancel_array(*request, response) : kNotScripted;
}

grpc::Status FakeCluster::ListSecrets(grpc::ServerContext* context,
                                      const v1::ListSecretsRequest* request,
                                      v1::ListSecretsResponse* response) {
  return on_list_secrets ? on_list_secrets(*request, response) : kNotScripted;
}

grpc::Status FakeCluster::ListNodes(grpc::ServerContext* context,
                                    const v1::ListNodesRequest* request,
                                    v1::ListNodesResponse* response) {
  return on_list_nodes ? on_list_nodes(*request, response) : kNotScripted;
}

grpc::Status FakeCluster::GetNode(grpc::ServerContext* context, const v1::GetNodeRequest* request,
                                  v1::Node* response) {
  return on_get_node ? on_get_node(*request, response) : kNotScripted;
}

grpc::Status FakeCluster::TestNode(grpc::ServerContext* context, const v1::TestNodeRequest* request,
                                   v1::Node* response) {
  return on_test_node ? on_test_node(*request, response) : kNotScripted;
}

grpc::Status FakeCluster::DrainNode(grpc::ServerContext* context,
                                    const v1::DrainNodeRequest* request, v1::Node* response) {
  return on_drain ? on_drain(*request, response) : kNotScripted;
}

grpc::Status FakeCluster::WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                                   grpc::ServerWriter<v1::Job>* writer) {
  if (!on_watch) return kNotScripted;
  return on_watch(*request, *context, [writer](const v1::Job& job) { return writer->Write(job); });
}

grpc::Status FakeCluster::ReadLog(grpc::ServerContext* context, const v1::ReadLogRequest* request,
                                  grpc::ServerWriter<v1::LogChunk>* writer) {
  if (!on_log) return kNotScripted;
  return on_log(*request, *context,
                [writer](const v1::LogChunk& chunk) { return writer->Write(chunk); });
}

grpc::Status FakeCluster::FindMissingFiles(grpc::ServerContext* context,
                                           const v1::FindMissingFilesRequest* request,
                                           v1::FindMissingFilesResponse* response) {
  return on_find_missing ? on_find_missing(*request, response) : kNotScripted;
}

grpc::Status FakeCluster::UploadFile(grpc::ServerContext* context,
                                     grpc::ServerReader<v1::UploadFileRequest>* reader,
                                     v1::UploadFileResponse* response) {
  std::string digest, content;
  v1::UploadFileRequest request;
  while (reader->Read(&request)) {
    if (digest.empty()) digest = request.sha256();
    content += request.data();
  }
  return on_upload ? on_upload(digest, content) : kNotScripted;
}

grpc::Status FakeCluster::GetVersion(grpc::ServerContext* context,
                                     const v1::GetVersionRequest* request,
                                     v1::GetVersionResponse* response) {
  response->set_software_version("fake");
  return grpc::Status::OK;
}

}  // namespace muster::cli
