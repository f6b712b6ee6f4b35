#include "cli/client.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/grpc/channel.h"
#include "common/grpc/deadline.h"
#include "common/grpc/status.h"
#include "common/random_id.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "common/version.h"
#include "google/protobuf/descriptor.h"
#include "grpc/grpc.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/client_unary_call.h"
#include "proto/muster/v1/cluster.grpc.pb.h"

namespace muster::cli {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);
// A stream that is idle for this long is probed, to detect a host that vanished. gRPC servers treat
// more frequent probes as abuse.
constexpr absl::Duration kKeepalive = absl::Minutes(5);
// Submissions are retried longer: after giving up, the user does not know whether the job exists.
constexpr absl::Duration kSubmitPatience = absl::Seconds(15);
// The coordinator closes connections that send much before a call on them was authenticated.
constexpr size_t kMaxFirstRequestBytes = 32 << 10;

// The cause in an error of gRPC such as "failed to connect to all addresses; last error: UNKNOWN:
// ipv4:127.0.0.1:7070: Failed to connect to remote host: Connection refused".
std::string LastCause(const std::string& message) {
  const size_t colon = message.rfind(": ");
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

// Prepares a request for the next page of `limit` items at most. Returns whether there is room for
// one after `count` items.
template <typename Request>
bool LimitPage(uint32_t limit, int count, Request& request) {
  if (limit == 0) return true;
  request.set_limit(limit - std::min(limit, static_cast<uint32_t>(count)));
  return request.limit() > 0;
}

// Reads a list to its end; see ReadPages.
template <typename Response, typename Request, typename... PageFunctions>
absl::StatusOr<Response> CallPages(ClusterClient& client, const Request& request,
                                   PageFunctions... functions) {
  return ReadPages(
      request, [&](const Request& page) { return client.Call<Response>(page); }, functions...);
}

// The path of the RPC that takes `request`; no two RPCs take the same type.
absl::StatusOr<std::string> MethodPath(const google::protobuf::Message& request,
                                       const google::protobuf::Message& response) {
  const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
      v1::ClusterService::service_full_name());
  for (int i = 0; i < service->method_count(); ++i) {
    const google::protobuf::MethodDescriptor& method = *service->method(i);
    if (method.input_type() == request.GetDescriptor() &&
        method.output_type() == response.GetDescriptor() && !method.client_streaming() &&
        !method.server_streaming()) {
      return absl::StrCat("/", service->full_name(), "/", method.name());
    }
  }
  return absl::InternalError(absl::StrCat("no call takes ", request.GetTypeName(), " and returns ",
                                          response.GetTypeName()));
}

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

std::shared_ptr<grpc::Channel> MakeChannel(const ClusterClient::Options& options) {
  // Keeps gRPC's threads until the process ends: stopping them takes longer than a call.
  [[maybe_unused]] static const bool initialized = (grpc_init(), true);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, Milliseconds(kFirstPause));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Milliseconds(kLongestPause));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(kKeepalive));
  return OpenChannel(options.address, std::move(arguments), options.security);
}

}  // namespace

class ClusterClient::Impl {
 public:
  explicit Impl(Options options)
      : options_(std::move(options)),
        channel_(MakeChannel(options_)),
        stub_(v1::ClusterService::NewStub(channel_)) {}

  v1::ClusterService::Stub& stub() { return *stub_; }

  // Retries while UNAVAILABLE, for `patience` if it is longer than that of the options.
  absl::Status Call(const google::protobuf::Message& request, google::protobuf::Message& response,
                    Stopper* stopper, absl::Duration patience = absl::ZeroDuration()) {
    ASSIGN_OR_RETURN(const std::string path, MethodPath(request, response));
    const grpc::internal::RpcMethod method(path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC);
    Stopper never;
    Stopper& stop = stopper == nullptr ? never : *stopper;
    const SteadyTime give_up = Now().steady + std::max(patience, options_.patience);
    absl::Duration pause = kFirstPause;
    bool refused = false;
    while (true) {
      grpc::ClientContext context;
      context.set_deadline(GrpcDeadline(options_.call_timeout));
      grpc::Status status;
      {
        const Stopper::Registration registration(stop, [&context] { context.TryCancel(); });
        status = grpc::internal::BlockingUnaryCall<google::protobuf::MessageLite,
                                                   google::protobuf::MessageLite>(
            channel_.get(), method, &context, request, &response);
      }
      if (status.ok()) {
        answered_ = true;
        return absl::OkStatus();
      }
      // A coordinator that has just started may not have written its token file yet.
      const bool first_refusal =
          status.error_code() == grpc::StatusCode::UNAUTHENTICATED && !std::exchange(refused, true);
      const bool again = first_refusal || (status.error_code() == grpc::StatusCode::UNAVAILABLE &&
                                           Now().steady + pause < give_up);
      if (again && !first_refusal && pause == kFirstPause) {
        // Retrying does not help if the credentials are wrong.
        const absl::Status explained = Explain(status, stop);
        if (absl::IsUnauthenticated(explained)) return explained;
      }
      if (!again || !Pause(pause, stop)) return Explain(status, stop);
      pause = std::min(2 * pause, kLongestPause);
    }
  }

  // Returns whether there is a connection, after at most `patience`.
  bool Connect(absl::Duration patience) {
    return channel_->WaitForConnected(GrpcDeadline(patience));
  }

  bool Pause(absl::Duration pause, Stopper& stopper) {
    // gRPC connects only while a thread waits for the channel, otherwise with delays of 5 s.
    if (channel_->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY) {
      return stopper.SleepFor(pause);
    }
    Connect(pause);
    return !stopper.stopped();
  }

  template <typename Message>
  absl::Status ReadAll(grpc::ClientContext& context, grpc::ClientReader<Message>& reader,
                       Stopper& stopper, absl::FunctionRef<bool(const Message&)> on_message) {
    Message message;
    while (reader.Read(&message)) {
      if (on_message(message)) continue;
      context.TryCancel();
      // Finish requires that pending messages have been read.
      while (reader.Read(&message)) {
      }
      reader.Finish();
      return absl::OkStatus();
    }
    const grpc::Status status = reader.Finish();
    return status.ok() ? absl::OkStatus() : Explain(status, stopper);
  }

  // The status with a message for a person at a command line.
  absl::Status Explain(const grpc::Status& status, const Stopper& stopper) const {
    if (stopper.stopped()) return absl::CancelledError("interrupted");
    // A coordinator that answers may also return UNAVAILABLE, about a node.
    const bool connected = channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE && !connected) {
      const absl::Status reason =
          security::Explain(FromGrpcStatus(status), options_.security, options_.address);
      if (!absl::IsUnavailable(reason)) return reason;
      return absl::UnavailableError(absl::StrCat(
          "no coordinator at ", options_.address, " (", LastCause(status.error_message()), ")",
          answered_ ? "" : "; set --coordinator or MUSTER_COORDINATOR to another address"));
    }
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED &&
        status.error_message() == "Deadline Exceeded") {
      return absl::DeadlineExceededError(absl::StrCat("the coordinator at ", options_.address,
                                                      " did not answer within ",
                                                      absl::FormatDuration(options_.call_timeout)));
    }
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) return FromGrpcStatus(status);
    return security::Explain(FromGrpcStatus(status), options_.security, options_.address);
  }

 private:
  const Options options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::ClusterService::Stub> stub_;
  std::atomic<bool> answered_ = false;  // at least once, so the address is right
};

ClusterClient::ClusterClient(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}

ClusterClient::~ClusterClient() = default;

bool ClusterClient::Pause(absl::Duration pause, Stopper& stopper) {
  return impl_->Pause(pause, stopper);
}

absl::Status ClusterClient::CallMethod(const google::protobuf::Message& request,
                                       google::protobuf::Message& response, Stopper* stopper) {
  return impl_->Call(request, response, stopper);
}

absl::StatusOr<v1::SubmitJobResponse> ClusterClient::SubmitJob(v1::SubmitJobRequest request) {
  // Coordinators of the version before understand the request, too.
  request.set_protocol_version(kOldestProtocolVersion);
  if (request.idempotency_key().empty()) request.set_idempotency_key(NewIdempotencyKey());
  // If there is no connection, nothing was submitted: fail early.
  if (!impl_->Connect(kFirstPause) || request.ByteSizeLong() > kMaxFirstRequestBytes) {
    RETURN_IF_ERROR(Call<v1::GetVersionResponse>(v1::GetVersionRequest()).status());
  }
  v1::SubmitJobResponse response;
  RETURN_IF_ERROR(impl_->Call(request, response, /*stopper=*/nullptr, kSubmitPatience));
  return response;
}

absl::StatusOr<v1::ListJobsResponse> ClusterClient::ListJobs(const v1::ListJobsRequest& request) {
  return CallPages<v1::ListJobsResponse>(
      *this, request,
      [](const v1::ListJobsResponse& page, v1::ListJobsResponse& all) {
        all.mutable_jobs()->MergeFrom(page.jobs());
        all.mutable_arrays()->MergeFrom(page.arrays());
      },
      [limit = request.limit()](const v1::ListJobsResponse& all, v1::ListJobsRequest& next) {
        return LimitPage(limit, all.jobs_size() + all.arrays_size(), next);
      });
}

absl::StatusOr<v1::ListEventsResponse> ClusterClient::ListEvents(v1::ListEventsRequest request) {
  v1::ListEventsResponse all;
  do {
    ASSIGN_OR_RETURN(v1::ListEventsResponse page, Call<v1::ListEventsResponse>(request));
    all.mutable_events()->MergeFrom(page.events());
    all.set_more(page.more() && !page.events().empty());
    if (all.more()) request.set_after_sequence(page.events().rbegin()->sequence());
  } while (all.more());
  return all;
}

absl::StatusOr<v1::GetArrayResponse> ClusterClient::GetArray(const std::string& array_id) {
  v1::GetArrayRequest request;
  request.set_array_id(array_id);
  return CallPages<v1::GetArrayResponse>(
      *this, request, [](auto& page, auto& all) { all.mutable_tasks()->MergeFrom(page.tasks()); });
}

absl::StatusOr<v1::GetQueueResponse> ClusterClient::GetQueue(uint32_t limit) {
  v1::GetQueueRequest request;
  request.set_limit(limit);
  return CallPages<v1::GetQueueResponse>(
      *this, request, [](auto& page, auto& all) { all.mutable_jobs()->MergeFrom(page.jobs()); },
      [limit](const v1::GetQueueResponse& all, v1::GetQueueRequest& next) {
        return LimitPage(limit, all.jobs_size(), next);
      });
}

absl::StatusOr<v1::GetReportResponse> ClusterClient::GetReport(uint32_t days) {
  v1::GetReportRequest request;
  request.set_days(days);
  return CallPages<v1::GetReportResponse>(*this, request, [](auto& page, auto& all) {
    all.mutable_owners()->MergeFrom(page.owners());
  });
}

absl::StatusOr<v1::ListSecretsResponse> ClusterClient::ListSecrets() {
  return CallPages<v1::ListSecretsResponse>(
      *this, v1::ListSecretsRequest(),
      [](auto& page, auto& all) { all.mutable_secrets()->MergeFrom(page.secrets()); });
}

absl::StatusOr<v1::ListNodesResponse> ClusterClient::ListNodes() {
  return CallPages<v1::ListNodesResponse>(*this, v1::ListNodesRequest(), [](auto& page, auto& all) {
    all.mutable_nodes()->MergeFrom(page.nodes());
  });
}

absl::Status ClusterClient::UploadFile(const std::string& sha256, uint64_t size_bytes,
                                       absl::FunctionRef<absl::StatusOr<std::string>()> read) {
  grpc::ClientContext context;
  v1::UploadFileResponse response;
  const auto writer = impl_->stub().UploadFile(&context, &response);
  v1::UploadFileRequest request;
  request.set_sha256(sha256);
  request.set_size_bytes(size_bytes);
  absl::Status unreadable;
  // The first message is sent even if the file is empty. A write fails once the coordinator has
  // answered.
  for (bool first = true;; first = false) {
    absl::StatusOr<std::string> data = read();
    unreadable = data.status();
    if (!unreadable.ok()) context.TryCancel();
    if (!unreadable.ok() || (data->empty() && !first)) break;
    request.set_data(*std::move(data));
    if (!writer->Write(request)) break;
    request.Clear();
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  if (!unreadable.ok()) return unreadable;
  return status.ok() ? absl::OkStatus() : impl_->Explain(status, Stopper());
}

absl::Status ClusterClient::WatchJob(const std::string& job_id, Stopper& stopper,
                                     absl::FunctionRef<bool(const v1::Job&)> on_job) {
  grpc::ClientContext context;
  const Stopper::Registration registration(stopper, [&context] { context.TryCancel(); });
  v1::WatchJobRequest request;
  request.set_job_id(job_id);
  const auto reader = impl_->stub().WatchJob(&context, request);
  return impl_->ReadAll<v1::Job>(context, *reader, stopper, on_job);
}

class ClusterClient::LogStream : public ClusterClient::LogCall {
 public:
  LogStream(Impl& impl, const v1::ReadLogRequest& request, Stopper& stopper)
      : impl_(impl), stopper_(stopper), registration_(stopper, [this] { context_.TryCancel(); }) {
    reader_ = impl.stub().ReadLog(&context_, request);
  }
  ~LogStream() override {
    if (finished_) return;
    context_.TryCancel();
    v1::LogChunk chunk;
    // Finish requires that pending messages have been read.
    while (reader_->Read(&chunk)) {
    }
    reader_->Finish();
  }

  bool Next(v1::LogChunk& chunk) override { return reader_->Read(&chunk); }
  absl::Status Finish() override {
    finished_ = true;
    const grpc::Status status = reader_->Finish();
    return status.ok() ? absl::OkStatus() : impl_.Explain(status, stopper_);
  }

 private:
  Impl& impl_;
  Stopper& stopper_;
  grpc::ClientContext context_;
  const Stopper::Registration registration_;
  std::unique_ptr<grpc::ClientReader<v1::LogChunk>> reader_;
  bool finished_ = false;
};

std::unique_ptr<ClusterClient::LogCall> ClusterClient::ReadLog(const v1::ReadLogRequest& request,
                                                               Stopper& stopper) {
  return std::make_unique<LogStream>(*impl_, request, stopper);
}

absl::Status ClusterClient::ReadFiles(const v1::ReadFilesRequest& request, Stopper& stopper,
                                      absl::FunctionRef<bool(const v1::ArchiveChunk&)> on_chunk) {
  grpc::ClientContext context;
  const Stopper::Registration registration(stopper, [&context] { context.TryCancel(); });
  const auto reader = impl_->stub().ReadFiles(&context, request);
  return impl_->ReadAll<v1::ArchiveChunk>(context, *reader, stopper, on_chunk);
}

class ClusterClient::ExecStreamImpl final : public ExecStream {
 public:
  explicit ExecStreamImpl(Impl& impl) : impl_(impl), stream_(impl.stub().Exec(&context_)) {}

  bool Write(const v1::ExecInput& input) override {
    absl::MutexLock lock(&write_mutex_);
    return stream_->Write(input);
  }
  bool TryWrite(const v1::ExecInput& input) override ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (!write_mutex_.TryLock()) return false;
    const bool written = stream_->Write(input);
    write_mutex_.Unlock();
    return written;
  }
  bool Read(v1::ExecOutput& output) override { return stream_->Read(&output); }
  absl::Status Finish() override {
    const grpc::Status status = stream_->Finish();
    return status.ok() ? absl::OkStatus() : impl_.Explain(status, stopper_);
  }
  void Cancel() override {
    stopper_.Stop();
    context_.TryCancel();
  }

 private:
  Impl& impl_;
  Stopper stopper_;  // stopped by Cancel, for Explain
  grpc::ClientContext context_;
  absl::Mutex write_mutex_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::ExecInput, v1::ExecOutput>> stream_;
};

std::unique_ptr<ExecStream> ClusterClient::Exec() {
  return std::make_unique<ExecStreamImpl>(*impl_);
}

std::string NewIdempotencyKey() { return RandomHexId(128); }

bool MayBeArray(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsInvalidArgument(status);
}

absl::StatusOr<JobOrArray> FindJobOrArray(ClusterClient& client, const std::string& name,
                                          Stopper* stopper) {
  absl::StatusOr<v1::Job> job = client.GetJob(name, stopper);
  if (job.ok()) return JobOrArray(*std::move(job));
  if (!MayBeArray(job.status())) return job.status();
  absl::StatusOr<v1::GetArrayResponse> array = client.GetArray(name);
  if (array.ok()) return JobOrArray(*std::move(array));
  return job.status();
}

}  // namespace muster::cli
