// A client of the coordinator, with timeouts and retries suited to a person at a command line.
#ifndef MUSTER_CLI_CLIENT_H_
#define MUSTER_CLI_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/follow/signals.h"
#include "common/security/client_security.h"
#include "common/status.h"
#include "google/protobuf/message.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::cli {

// One exec. Input may be written by any thread while one thread reads.
class ExecStream {
 public:
  virtual ~ExecStream() = default;
  // Returns false when the stream has ended.
  virtual bool Write(const v1::ExecInput& input) = 0;
  // Returns false, without waiting, if another write is in progress or the stream has ended.
  virtual bool TryWrite(const v1::ExecInput& input) = 0;
  virtual bool Read(v1::ExecOutput& output) = 0;
  // The status of the stream; called once, after Read has returned false.
  virtual absl::Status Finish() = 0;
  // Ends the stream with CANCELLED.
  virtual void Cancel() = 0;
};

// Thread-safe; calls block. Errors are those of proto/muster/v1/cluster.proto, and UNAVAILABLE,
// with the address in the message, when no coordinator answers.
class ClusterClient {
 public:
  struct Options {
    std::string address;  // host:port
    security::ClientSecurity security;
    // How long a call is retried while the coordinator is unreachable.
    absl::Duration patience = absl::Seconds(3);
    // Deadline of one attempt.
    absl::Duration call_timeout = absl::Seconds(10);
  };
  // Does not connect yet.
  explicit ClusterClient(Options options);
  ~ClusterClient();

  // Waits before a call is repeated, at most until the coordinator is reachable again. Returns
  // false if `stopper` is stopped.
  bool Pause(absl::Duration pause, Stopper& stopper);

  // The request's idempotency key makes retries safe; a random key is used if the request has none.
  absl::StatusOr<v1::SubmitJobResponse> SubmitJob(v1::SubmitJobRequest request);
  // Calls the RPC whose request is a Request, which must be unary, idempotent and answer with a
  // Response. Retries while the coordinator is unavailable. Returns CANCELLED once `stopper`, if
  // given, is stopped, and UNIMPLEMENTED if the coordinator is older than the RPC.
  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(const Request& request, Stopper* stopper = nullptr) {
    Response response;
    RETURN_IF_ERROR(CallMethod(request, response, stopper));
    return response;
  }
  template <typename Request, typename Response = v1::Job>
  absl::StatusOr<Response> CallForJob(const std::string& job_id, Stopper* stopper = nullptr) {
    Request request;
    request.set_job_id(job_id);
    return Call<Response>(request, stopper);
  }
  template <typename Request>
  absl::StatusOr<v1::Node> CallForNode(const std::string& name) {
    Request request;
    request.set_name(name);
    return Call<v1::Node>(request);
  }
  absl::StatusOr<v1::Job> GetJob(const std::string& job_id, Stopper* stopper = nullptr) {
    return CallForJob<v1::GetJobRequest>(job_id, stopper);
  }
  absl::StatusOr<v1::Node> GetNode(const std::string& name) {
    return CallForNode<v1::GetNodeRequest>(name);
  }

  // Lists are read page by page to their end, or to the request's limit; the reply of the latter
  // then has a next_page_token.
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request);
  absl::StatusOr<v1::ListEventsResponse> ListEvents(v1::ListEventsRequest request);
  // An array by its id, name or unique prefix.
  absl::StatusOr<v1::GetArrayResponse> GetArray(const std::string& array_id);
  // `limit`: maximum number of jobs; 0: all.
  absl::StatusOr<v1::GetQueueResponse> GetQueue(uint32_t limit = 0);
  // `days`: the newest ones, today included; 0: 7.
  absl::StatusOr<v1::GetReportResponse> GetReport(uint32_t days = 0);
  // Names, never values.
  absl::StatusOr<v1::ListSecretsResponse> ListSecrets();
  absl::StatusOr<v1::ListNodesResponse> ListNodes();
  // Calls `read` until it returns an empty string or an error, and uploads what it returned, each
  // time at most limits::kLogChunkBytes. Does not retry.
  absl::Status UploadFile(const std::string& sha256, uint64_t size_bytes,
                          absl::FunctionRef<absl::StatusOr<std::string>()> read);

  // Opens one stream and does not retry. `on_job` is called for each message until it returns false
  // (result OK), the stream ends (the stream's status), or `stopper` is stopped (CANCELLED).
  absl::Status WatchJob(const std::string& job_id, Stopper& stopper,
                        absl::FunctionRef<bool(const v1::Job&)> on_job);

  // A stream of a log's chunks. Used by one thread. Destruction cancels it.
  class LogCall {
   public:
    virtual ~LogCall() = default;
    // Waits for the next chunk; false at the end of the stream.
    virtual bool Next(v1::LogChunk& chunk) = 0;
    // The stream's status, once Next has returned false; CANCELLED if the stopper was stopped.
    virtual absl::Status Finish() = 0;
  };
  // Opens one stream and does not retry. The client and `stopper` outlive the call.
  std::unique_ptr<LogCall> ReadLog(const v1::ReadLogRequest& request, Stopper& stopper);
  absl::Status ReadFiles(const v1::ReadFilesRequest& request, Stopper& stopper,
                         absl::FunctionRef<bool(const v1::ArchiveChunk&)> on_chunk);
  // Opens a stream that must not outlive the client. Does not retry.
  std::unique_ptr<ExecStream> Exec();

 private:
  class Impl;
  class LogStream;
  class ExecStreamImpl;
  absl::Status CallMethod(const google::protobuf::Message& request,
                          google::protobuf::Message& response, Stopper* stopper);

  std::unique_ptr<Impl> impl_;
};

// The first page with the items of all others, for each of which `append(page, all)` is called.
// `call` returns the page of a request. `prepare(all, request)`, if given, is called before each
// further page and may end the list; next_page_token is then not empty.
template <typename Request, typename Call, typename Append, typename Prepare>
auto ReadPages(Request request, Call call, Append append, Prepare prepare) {
  auto all = call(request);
  while (all.ok() && !all->next_page_token().empty() && prepare(*all, request)) {
    request.set_page_token(all->next_page_token());
    auto page = call(request);
    if (!page.ok()) return page;
    append(*page, *all);
    all->set_next_page_token(page->next_page_token());
  }
  return all;
}

template <typename Request, typename Call, typename Append>
auto ReadPages(Request request, Call call, Append append) {
  return ReadPages(request, call, append, [](const auto&, auto&) { return true; });
}

// 128 random bits as hexadecimal digits.
std::string NewIdempotencyKey();

// Whether the error of a call for a job does not rule out that the name is that of an array: there
// is no such job, or several match, such as the tasks of the array.
bool MayBeArray(const absl::Status& status);

using JobOrArray = std::variant<v1::Job, v1::GetArrayResponse>;
// If there is neither, returns the error for the job.
absl::StatusOr<JobOrArray> FindJobOrArray(ClusterClient& client, const std::string& name,
                                          Stopper* stopper = nullptr);

}  // namespace muster::cli

#endif  // MUSTER_CLI_CLIENT_H_
