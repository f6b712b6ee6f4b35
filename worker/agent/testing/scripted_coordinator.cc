#include "worker/agent/testing/scripted_coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "common/time/proto_time.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/muster/v1/worker.grpc.pb.h"

namespace muster::agent {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);
using SessionStream = grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>;

}  // namespace

class ScriptedCoordinator::Impl final : public v1::WorkerService::Service {
 public:
  Impl(int port, bool silent) : silent_(silent) {
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(limits::kMessageBytes);
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  ~Impl() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  int port() const { return port_; }

  grpc::Status Session(grpc::ServerContext* context, SessionStream* stream) override {
    v1::WorkerMessage message;
    if (!stream->Read(&message) || !message.has_hello()) {
      return grpc::Status(grpc::INVALID_ARGUMENT, "no hello");
    }
    {
      absl::MutexLock lock(&mutex_);
      ++sessions_;
      hello_ = message.hello();
      metadata_.clear();
      for (const auto& [key, value] : context->client_metadata()) {
        metadata_[std::string(key.data(), key.size())] = std::string(value.data(), value.size());
      }
      for (const v1::GenerationReport& report : hello_.inventory()) Keep(report);
      if (refusal_.error_code() != grpc::OK) return refusal_;
      stream_ = stream;
      context_ = context;
      if (!silent_) WriteWelcome();
    }
    while (stream->Read(&message)) {
      absl::MutexLock lock(&mutex_);
      if (message.has_heartbeat()) {
        v1::CoordinatorMessage reply;
        reply.mutable_heartbeat_ack()->set_sequence(message.heartbeat().sequence());
        if (acknowledging_) stream->Write(reply);
        for (const v1::GenerationReport& report : message.heartbeat().progress()) {
          KeepProgress(report);
        }
      }
      if (message.has_report()) Keep(message.report());
      messages_.push_back(message);
    }
    absl::MutexLock lock(&mutex_);
    if (stream_ == stream) {
      stream_ = nullptr;
      context_ = nullptr;
    }
    return grpc::Status::OK;
  }

  grpc::Status SendLog(grpc::ServerContext* context, grpc::ServerReader<v1::SendLogRequest>* reader,
                       v1::SendLogResponse*) override {
    {
      absl::MutexLock lock(&mutex_);
      if (log_refusal_ != 0) {
        return grpc::Status(static_cast<grpc::StatusCode>(log_refusal_), "no logs now");
      }
    }
    v1::SendLogRequest request;
    uint64_t transfer = 0;
    while (reader->Read(&request)) {
      absl::MutexLock lock(&mutex_);
      if (transfer == 0) transfer = request.transfer();
      Log& log = logs_[transfer];
      if (log.chunks++ == 0) log.first_offset = request.chunk().offset();
      log.data += request.chunk().data();
      log.notice += request.chunk().notice();
      log.lines.insert(log.lines.end(), request.chunk().lines().begin(),
                       request.chunk().lines().end());
      log.end = request.chunk().end();
    }
    absl::MutexLock lock(&mutex_);
    logs_[transfer].finished = true;
    logs_[transfer].cancelled = context->IsCancelled();
    return grpc::Status::OK;
  }

  grpc::Status ServeExec(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::ExecInput, v1::ServeExecRequest>* stream) override {
    v1::ServeExecRequest request;
    uint64_t transfer = 0;
    while (stream->Read(&request)) {
      absl::MutexLock lock(&mutex_);
      if (transfer == 0) transfer = request.transfer();
      execs_[transfer] = {context, stream};
      Stream& seen = streams_[transfer];
      const v1::ExecOutput& output = request.output();
      seen.out += output.stdout_data();
      seen.err += output.stderr_data();
      if (output.has_exit_code()) seen.exit_code = output.exit_code();
    }
    absl::MutexLock lock(&mutex_);
    execs_.erase(transfer);
    streams_[transfer].finished = true;
    streams_[transfer].cancelled = context->IsCancelled();
    return grpc::Status::OK;
  }

  grpc::Status SendFiles(grpc::ServerContext* context,
                         grpc::ServerReader<v1::SendFilesRequest>* reader,
                         v1::SendFilesResponse*) override {
    v1::SendFilesRequest request;
    uint64_t transfer = 0;
    while (reader->Read(&request)) {
      absl::MutexLock lock(&mutex_);
      if (transfer == 0) transfer = request.transfer();
      streams_[transfer].out += request.chunk().data();
    }
    absl::MutexLock lock(&mutex_);
    streams_[transfer].finished = true;
    streams_[transfer].cancelled = context->IsCancelled();
    return grpc::Status::OK;
  }

  void WriteWelcome() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    v1::CoordinatorMessage reply;
    v1::Welcome& welcome = *reply.mutable_welcome();
    welcome.set_coordinator_incarnation(7);
    *welcome.mutable_lease() = ToProto(absl::Seconds(5));
    *welcome.mutable_heartbeat_interval() = ToProto(absl::Milliseconds(20));
    welcome.set_observed_address("127.0.0.1");
    welcome.mutable_peers()->Assign(peers_.begin(), peers_.end());
    welcome.set_cluster_id(cluster_id_);
    welcome.set_commit_index(commit_index_);
    welcome.set_coordinator_start(coordinator_start_);
    stream_->Write(reply);
    welcomed_ = sessions_;
  }

  void Keep(const v1::GenerationReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const v1::RankReport& rank : report.ranks()) KeptReport(report, rank) = rank;
  }
  // Takes over the reports of a heartbeat, which have only some fields. A heartbeat may be older
  // than a report that arrived before it.
  void KeepProgress(const v1::GenerationReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const v1::RankReport& rank : report.ranks()) {
      v1::RankReport& kept = KeptReport(report, rank);
      kept.set_rank(rank.rank());
      kept.set_phase(std::max(kept.phase(), rank.phase()));
      kept.set_pid(rank.pid());
      kept.set_memory_bytes(rank.memory_bytes());
      *kept.mutable_progress() = rank.progress();
    }
  }
  v1::RankReport& KeptReport(const v1::GenerationReport& report, const v1::RankReport& rank)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ranks_[{absl::StrCat(report.job_id(), "/", report.generation()), rank.rank()}];
  }

  template <typename Predicate>
  bool Await(const Predicate& predicate) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&predicate), kPatience);
  }

  mutable absl::Mutex mutex_;
  int sessions_ ABSL_GUARDED_BY(mutex_) = 0;
  int welcomed_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::Hello hello_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> metadata_ ABSL_GUARDED_BY(mutex_);
  grpc::Status refusal_ ABSL_GUARDED_BY(mutex_);
  bool acknowledging_ ABSL_GUARDED_BY(mutex_) = true;
  std::vector<std::string> peers_ ABSL_GUARDED_BY(mutex_);
  std::string cluster_id_ ABSL_GUARDED_BY(mutex_);
  uint64_t commit_index_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string coordinator_start_ ABSL_GUARDED_BY(mutex_);
  int log_refusal_ ABSL_GUARDED_BY(mutex_) = 0;
  SessionStream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;
  grpc::ServerContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<v1::WorkerMessage> messages_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, uint32_t>, v1::RankReport> ranks_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Log> logs_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Stream> streams_ ABSL_GUARDED_BY(mutex_);
  struct Exec {
    grpc::ServerContext* context;
    grpc::ServerReaderWriter<v1::ExecInput, v1::ServeExecRequest>* stream;
  };
  std::map<uint64_t, Exec> execs_ ABSL_GUARDED_BY(mutex_);

 private:
  const bool silent_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

ScriptedCoordinator::ScriptedCoordinator(int port, bool silent)
    : impl_(std::make_unique<Impl>(port, silent)) {}

ScriptedCoordinator::~ScriptedCoordinator() = default;

int ScriptedCoordinator::port() const { return impl_->port(); }

std::string ScriptedCoordinator::address() const {
  return absl::StrCat("127.0.0.1:", impl_->port());
}

void ScriptedCoordinator::SetCluster(const std::string& cluster_id, uint64_t commit_index,
                                     const std::string& coordinator_start) {
  absl::MutexLock lock(&impl_->mutex_);
  impl_->cluster_id_ = cluster_id;
  impl_->commit_index_ = commit_index;
  impl_->coordinator_start_ = coordinator_start;
}

void ScriptedCoordinator::RefuseLogs(int code) {
  absl::MutexLock lock(&impl_->mutex_);
  impl_->log_refusal_ = code;
}

void ScriptedCoordinator::Refuse(int code, const std::string& message) {
  absl::MutexLock lock(&impl_->mutex_);
  impl_->refusal_ = grpc::Status(static_cast<grpc::StatusCode>(code), message);
}

void ScriptedCoordinator::SetAcknowledging(bool acknowledging) {
  absl::MutexLock lock(&impl_->mutex_);
  impl_->acknowledging_ = acknowledging;
}

void ScriptedCoordinator::SetPeers(std::vector<std::string> peers) {
  absl::MutexLock lock(&impl_->mutex_);
  impl_->peers_ = std::move(peers);
}

void ScriptedCoordinator::Welcome() {
  absl::MutexLock lock(&impl_->mutex_);
  if (impl_->stream_ != nullptr) impl_->WriteWelcome();
}

int ScriptedCoordinator::sessions() const {
  absl::MutexLock lock(&impl_->mutex_);
  return impl_->sessions_;
}

bool ScriptedCoordinator::WaitForSessions(int count) const {
  const auto reached = [this, count]()
                           ABSL_NO_THREAD_SAFETY_ANALYSIS { return impl_->sessions_ >= count; };
  return impl_->Await(reached);
}

v1::Hello ScriptedCoordinator::hello() const {
  absl::MutexLock lock(&impl_->mutex_);
  return impl_->hello_;
}

std::map<std::string, std::string> ScriptedCoordinator::metadata() const {
  absl::MutexLock lock(&impl_->mutex_);
  return impl_->metadata_;
}

void ScriptedCoordinator::Send(const v1::CoordinatorMessage& message) {
  absl::MutexLock lock(&impl_->mutex_);
  if (impl_->stream_ != nullptr) impl_->stream_->Write(message);
}

void ScriptedCoordinator::BreakSession() {
  absl::MutexLock lock(&impl_->mutex_);
  if (impl_->context_ != nullptr) impl_->context_->TryCancel();
}

std::vector<v1::WorkerMessage> ScriptedCoordinator::messages() const {
  absl::MutexLock lock(&impl_->mutex_);
  return impl_->messages_;
}

bool ScriptedCoordinator::WaitFor(const std::function<bool(const v1::WorkerMessage&)>& predicate,
                                  v1::WorkerMessage* found) const {
  size_t seen = 0;
  const auto came = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (; seen < impl_->messages_.size(); ++seen) {
      if (!predicate(impl_->messages_[seen])) continue;
      if (found != nullptr) *found = impl_->messages_[seen];
      return true;
    }
    return false;
  };
  return impl_->Await(came);
}

bool ScriptedCoordinator::WaitForCount(
    const std::function<bool(const v1::WorkerMessage&)>& predicate, int count) const {
  return impl_->Await([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return std::count_if(impl_->messages_.begin(), impl_->messages_.end(), predicate) >= count;
  });
}

bool ScriptedCoordinator::WaitForRank(const std::string& job_id, uint64_t generation, uint32_t rank,
                                      const std::function<bool(const v1::RankReport&)>& predicate,
                                      v1::RankReport* found) const {
  const std::pair<std::string, uint32_t> key(absl::StrCat(job_id, "/", generation), rank);
  const auto holds = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto it = impl_->ranks_.find(key);
    if (it == impl_->ranks_.end() || !predicate(it->second)) return false;
    if (found != nullptr) *found = it->second;
    return true;
  };
  return impl_->Await(holds);
}

ScriptedCoordinator::Log ScriptedCoordinator::log(uint64_t transfer) const {
  absl::MutexLock lock(&impl_->mutex_);
  const auto it = impl_->logs_.find(transfer);
  return it == impl_->logs_.end() ? Log() : it->second;
}

bool ScriptedCoordinator::WaitForLog(uint64_t transfer,
                                     const std::function<bool(const Log&)>& predicate) const {
  const auto holds = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto it = impl_->logs_.find(transfer);
    return it != impl_->logs_.end() && predicate(it->second);
  };
  return impl_->Await(holds);
}

bool ScriptedCoordinator::WaitForStream(uint64_t transfer,
                                        const std::function<bool(const Stream&)>& predicate,
                                        Stream* found) const {
  const auto holds = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto it = impl_->streams_.find(transfer);
    if (it == impl_->streams_.end() || !predicate(it->second)) return false;
    if (found != nullptr) *found = it->second;
    return true;
  };
  return impl_->Await(holds);
}

void ScriptedCoordinator::SendInput(uint64_t transfer, const v1::ExecInput& input) {
  absl::MutexLock lock(&impl_->mutex_);
  const auto it = impl_->execs_.find(transfer);
  if (it != impl_->execs_.end()) it->second.stream->Write(input);
}

void ScriptedCoordinator::BreakExec(uint64_t transfer) {
  absl::MutexLock lock(&impl_->mutex_);
  const auto it = impl_->execs_.find(transfer);
  if (it != impl_->execs_.end()) it->second.context->TryCancel();
}

}  // namespace muster::agent
