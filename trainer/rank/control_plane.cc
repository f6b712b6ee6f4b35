#include "trainer/rank/control_plane.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/grpc/deadline.h"
#include "common/grpc/status.h"
#include "common/rank_client.h"
#include "common/status.h"
#include "common/time/deadline.h"
#include "common/time/proto_time.h"
#include "common/time/steady_cond_var.h"
#include "grpcpp/client_context.h"
#include "proto/muster/v1/rank.grpc.pb.h"

namespace muster::rank {
namespace {

constexpr absl::Duration kRetryDelay = absl::Milliseconds(50);
constexpr absl::Duration kDefaultTimeout = absl::Seconds(30);
constexpr absl::Duration kProgressInterval = absl::Milliseconds(100);
// Unchanged progress is sent again after this interval, to distinguish a waiting rank from a
// stopped one.
constexpr absl::Duration kProgressKeepalive = absl::Seconds(2);
constexpr absl::Duration kLastProgressTimeout = absl::Milliseconds(500);

absl::StatusOr<std::string> Variable(const char* name) { return RankVariable(name, "muster-rank"); }

class GrpcControlPlane final : public ControlPlane {
 public:
  explicit GrpcControlPlane(const RankEnvironment& environment)
      : identity_(environment.identity),
        stub_(v1::RankService::NewStub(OpenWorkerChannel(environment.worker_socket))),
        progress_thread_([this] { SendProgress(); }),
        watch_thread_([this] { WatchDirectives(); }) {}

  ~GrpcControlPlane() override {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
      changed_.SignalAll();
      if (watch_context_ != nullptr) watch_context_->TryCancel();
    }
    progress_thread_.join();
    watch_thread_.join();
  }

  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinInfo& info, absl::Duration timeout) override {
    v1::JoinRequest request;
    *request.mutable_identity() = identity_;
    *request.mutable_info() = info;
    request.set_pid(getpid());
    v1::JoinResponse response;
    RETURN_IF_ERROR(Call(&Stub::Join, request, response, timeout));
    if (response.world().has_failure_timeout()) {
      absl::MutexLock lock(&mutex_);
      timeout_ = FromProto(response.world().failure_timeout());
    }
    return response;
  }

  absl::Status Barrier(absl::string_view group, absl::Duration timeout) override {
    v1::BarrierRequest request;
    *request.mutable_identity() = identity_;
    request.mutable_barrier()->set_group(std::string(group));
    {
      absl::MutexLock lock(&mutex_);
      request.mutable_barrier()->set_sequence(++barrier_sequences_[std::string(group)]);
    }
    v1::BarrierResponse response;
    return Call(&Stub::Barrier, request, response, timeout);
  }

  absl::Status Put(absl::string_view key, absl::string_view value) override {
    v1::PutRankKeyRequest request;
    *request.mutable_identity() = identity_;
    request.set_key(std::string(key));
    request.set_value(std::string(value));
    v1::PutRankKeyResponse response;
    return Call(&Stub::PutKey, request, response, Timeout());
  }

  absl::StatusOr<std::string> Get(absl::string_view key, absl::Duration timeout) override {
    v1::GetRankKeyRequest request;
    *request.mutable_identity() = identity_;
    request.set_key(std::string(key));
    v1::GetRankKeyResponse response;
    RETURN_IF_ERROR(Call(&Stub::GetKey, request, response, timeout));
    return std::move(*response.mutable_value());
  }

  absl::Status ReportConnected() override {
    v1::ReportRequest request;
    request.set_phase(v1::CONNECTED);
    return Report(std::move(request));
  }

  void ReportProgress(const v1::Progress& progress) override {
    absl::MutexLock lock(&mutex_);
    progress_ = progress;
    changed_.SignalAll();
  }

  void ReportCheckpoint(const v1::CheckpointStatus& checkpoint) override {
    absl::MutexLock lock(&mutex_);
    checkpoint_ = checkpoint;
    changed_.SignalAll();
  }

  absl::Status ReportFailure(const v1::FailureReport& failure) override {
    v1::ReportRequest request;
    *request.mutable_failure() = failure;
    {
      // The rank may be stopped before the progress that led to the failure is due.
      absl::MutexLock lock(&mutex_);
      if (progress_.has_value()) *request.mutable_progress() = *std::move(progress_);
      progress_.reset();
    }
    return Report(std::move(request));
  }

  absl::Status ReportSummary(const v1::TrainSummary& summary) override {
    v1::ReportRequest request;
    *request.mutable_summary() = summary;
    return Report(std::move(request));
  }

  void SetDirectiveHandler(std::function<void(const v1::Directive&)> handler) override {
    absl::MutexLock lock(&mutex_);
    handler_ = std::move(handler);
  }

 private:
  using Stub = v1::RankService::Stub;

  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response& response, absl::Duration timeout) {
    const Deadline deadline(timeout);
    while (true) {
      grpc::ClientContext context;
      context.set_deadline(GrpcDeadline(deadline.left()));
      context.set_wait_for_ready(true);
      const absl::Status status =
          FromGrpcStatus((stub_.get()->*method)(&context, request, &response));
      if (!absl::IsUnavailable(status) || deadline.left() <= kRetryDelay) return status;
      // The worker disconnected; it may be restarting.
      if (WaitForStop(kRetryDelay)) return status;
    }
  }

  absl::Status Report(v1::ReportRequest request) {
    *request.mutable_identity() = identity_;
    v1::ReportResponse response;
    return Call(&Stub::Report, request, response, Timeout());
  }

  absl::Duration Timeout() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return timeout_;
  }

  bool WaitForStop(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return changed_.WaitFor(&mutex_, duration, [this] {
      mutex_.AssertHeld();
      return stopping_;
    });
  }

  void SendProgress() {
    v1::ReportRequest request;
    *request.mutable_identity() = identity_;
    while (true) {
      bool last = false;
      {
        absl::MutexLock lock(&mutex_);
        // A new phase is sent at once, other progress at a rate for human readers.
        changed_.WaitFor(&mutex_, kProgressInterval, [this] {
          mutex_.AssertHeld();
          return stopping_ || (progress_.has_value() && progress_->phase() != sent_phase_);
        });
        changed_.WaitFor(&mutex_, kProgressKeepalive, [this] {
          mutex_.AssertHeld();
          return stopping_ || progress_.has_value() || checkpoint_.has_value();
        });
        last = stopping_;
        if (last && !progress_.has_value() && !checkpoint_.has_value()) return;
        if (progress_.has_value()) *request.mutable_progress() = *std::move(progress_);
        if (checkpoint_.has_value()) *request.mutable_checkpoint() = *std::move(checkpoint_);
        progress_.reset();
        checkpoint_.reset();
        if (!request.has_progress()) continue;
        sent_phase_ = request.progress().phase();
      }
      grpc::ClientContext context;
      context.set_deadline(GrpcDeadline(last ? kLastProgressTimeout : Timeout()));
      v1::ReportResponse response;
      // Errors are ignored: the next report replaces a lost one.
      stub_->Report(&context, request, &response);
    }
  }

  void WatchDirectives() {
    v1::WatchRequest request;
    *request.mutable_identity() = identity_;
    std::string last;
    while (true) {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      {
        absl::MutexLock lock(&mutex_);
        if (stopping_) return;
        watch_context_ = &context;
      }
      const auto reader = stub_->Watch(&context, request);
      v1::Directive directive;
      while (reader->Read(&directive)) {
        // A reopened stream repeats the last directive to abort or stop. Each one to write a
        // checkpoint is a new request.
        if (directive.kind() != v1::Directive::CHECKPOINT) {
          std::string bytes = directive.SerializeAsString();
          if (bytes == last) continue;
          last = std::move(bytes);
        }
        if (!Deliver(directive)) break;
      }
      context.TryCancel();
      const grpc::Status status = reader->Finish();
      {
        absl::MutexLock lock(&mutex_);
        watch_context_ = nullptr;
      }
      const bool generation_is_over = status.ok() || status.error_code() == grpc::ABORTED;
      if (generation_is_over || status.error_code() == grpc::UNAUTHENTICATED) return;
      if (WaitForStop(kRetryDelay)) return;
    }
  }

  bool HasHandler() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || handler_ != nullptr;
  }

  // Returns false if the control plane is shutting down.
  bool Deliver(const v1::Directive& directive) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::function<void(const v1::Directive&)> handler;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &GrpcControlPlane::HasHandler));
      if (stopping_) return false;
      handler = handler_;
    }
    handler(directive);
    return true;
  }

  const v1::RankIdentity identity_;
  const std::unique_ptr<Stub> stub_;

  absl::Mutex mutex_;
  SteadyCondVar changed_;  // stopping_, progress_ or checkpoint_ has been set
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration timeout_ ABSL_GUARDED_BY(mutex_) = kDefaultTimeout;
  absl::flat_hash_map<std::string, uint64_t> barrier_sequences_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::Progress> progress_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::CheckpointStatus> checkpoint_ ABSL_GUARDED_BY(mutex_);
  std::string sent_phase_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const v1::Directive&)> handler_ ABSL_GUARDED_BY(mutex_);
  grpc::ClientContext* watch_context_ ABSL_GUARDED_BY(mutex_) = nullptr;

  // Declared last, so that the threads are destroyed before the members that they use.
  std::thread progress_thread_;
  std::thread watch_thread_;
};

}  // namespace

absl::StatusOr<RankEnvironment> ReadRankEnvironment() {
  RankEnvironment environment;
  ASSIGN_OR_RETURN(environment.worker_socket, Variable("MUSTER_WORKER_SOCKET"));
  ASSIGN_OR_RETURN(environment.node_name, Variable("MUSTER_NODE_NAME"));
  ASSIGN_OR_RETURN(environment.cache_dir, Variable("MUSTER_CACHE_DIR"));
  ASSIGN_OR_RETURN(environment.checkpoint_dir, Variable("MUSTER_CHECKPOINT_DIR"));
  ASSIGN_OR_RETURN(environment.identity, ReadRankIdentity("muster-rank"));
  if (const char* memory = std::getenv("MUSTER_JOB_MEMORY_DIR"); memory != nullptr) {
    environment.memory_dir = memory;
  }
  if (const char* driver = std::getenv("MUSTER_DRIVER_VERSION"); driver != nullptr) {
    environment.driver_version = driver;
  }
  return environment;
}

std::unique_ptr<ControlPlane> ConnectControlPlane(const RankEnvironment& environment) {
  return std::make_unique<GrpcControlPlane>(environment);
}

}  // namespace muster::rank
