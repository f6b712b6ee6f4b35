#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "collectives/peer_status.h"
#include "common/grpc_log.h"
#include "common/grpc_status.h"
#include "common/limits.h"
#include "common/status.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "process_group/rendezvous.h"
#include "proto/muster/v1/process_group.grpc.pb.h"

namespace muster {
namespace {

constexpr size_t kNamedRanks = 1000;
constexpr int kKeepaliveMs = 10000;
constexpr std::chrono::milliseconds kShutdownTime(500);

// A rank's stream.
class AttendCall final : public grpc::ServerWriteReactor<v1::AttendResponse>,
                         public Meeting::Listener {
 public:
  AttendCall(Meeting& meeting, const v1::AttendRequest& request)
      : meeting_(meeting), rank_(request.rank()) {
    const absl::Status status = meeting.Join({.rank = request.rank(),
                                              .world_size = request.world_size(),
                                              .run = request.run(),
                                              .host = request.host()},
                                             this);
    if (!status.ok()) EndWith(status);
  }

  void Complete(const std::vector<uint32_t>& node_of_rank) override {
    v1::AttendResponse response;
    response.mutable_node_of_rank()->Add(node_of_rank.begin(), node_of_rank.end());
    Push(std::move(response));
  }
  void Lost(uint32_t rank) override {
    v1::AttendResponse response;
    response.set_lost_rank(rank);
    Push(std::move(response));
  }
  void End(const absl::Status& status) override { EndWith(status); }

  void OnWriteDone(bool) override {
    std::optional<absl::Status> end;
    {
      absl::MutexLock lock(&mutex_);
      queue_.pop_front();
      if (!queue_.empty()) {
        StartWrite(&queue_.front());
      } else if (end_.has_value() && !finished_) {
        finished_ = true;
        end = end_;
      }
    }
    // Without the lock: this may be deleted at once.
    if (end.has_value()) Finish(ToGrpcStatus(*end));
  }
  void OnCancel() override {
    // What is being written ends by itself, with OnWriteDone.
    EndWith(absl::CancelledError("the rank has gone"));
  }
  // The meeting tells nobody while it removes, so nothing uses this afterwards.
  void OnDone() override {
    meeting_.Remove(rank_, this);
    delete this;
  }

 private:
  void Push(v1::AttendResponse response) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (end_.has_value()) return;
    queue_.push_back(std::move(response));
    if (queue_.size() == 1) StartWrite(&queue_.front());
  }

  // After what is being written.
  void EndWith(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      if (end_.has_value()) return;
      end_ = status;
      if (!queue_.empty()) return;
      finished_ = true;
    }
    Finish(ToGrpcStatus(status));
  }

  Meeting& meeting_;
  const uint32_t rank_;
  absl::Mutex mutex_;
  std::deque<v1::AttendResponse> queue_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

class GetCall final : public grpc::ServerUnaryReactor {
 public:
  GetCall(std::shared_ptr<Meeting> meeting, const std::string& key,
          v1::GetGroupKeyResponse* response)
      : meeting_(std::move(meeting)) {
    const uint64_t id = meeting_->Get(key, [this, response](absl::StatusOr<std::string> value) {
      if (value.ok()) response->set_value(*std::move(value));
      End(value.status());
    });
    absl::MutexLock lock(&mutex_);
    id_ = id;
  }

  void OnCancel() override {
    uint64_t id = 0;
    {
      absl::MutexLock lock(&mutex_);
      id = id_;
    }
    meeting_->Cancel(id);
  }
  void OnDone() override { delete this; }

 private:
  void End(const absl::Status& status) { Finish(ToGrpcStatus(status)); }

  const std::shared_ptr<Meeting> meeting_;
  absl::Mutex mutex_;
  uint64_t id_ ABSL_GUARDED_BY(mutex_) = 0;
};

class Service final : public v1::ProcessGroupService::CallbackService {
 public:
  explicit Service(std::shared_ptr<Meeting> meeting) : meeting_(std::move(meeting)) {}

  grpc::ServerWriteReactor<v1::AttendResponse>* Attend(grpc::CallbackServerContext*,
                                                       const v1::AttendRequest* request) override {
    return new AttendCall(*meeting_, *request);
  }
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest* request, v1::LeaveResponse*) override {
    meeting_->Leave(request->rank());
    return Finished(context, absl::OkStatus());
  }
  grpc::ServerUnaryReactor* ListMissing(grpc::CallbackServerContext* context,
                                        const v1::ListMissingRequest*,
                                        v1::ListMissingResponse* response) override {
    for (const uint32_t rank : meeting_->Missing(kNamedRanks)) response->add_ranks(rank);
    return Finished(context, absl::OkStatus());
  }
  grpc::ServerUnaryReactor* Put(grpc::CallbackServerContext* context,
                                const v1::PutGroupKeyRequest* request,
                                v1::PutGroupKeyResponse*) override {
    return Finished(context, meeting_->Put(request->key(), request->value()));
  }
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext*, const v1::GetGroupKeyRequest* request,
                                v1::GetGroupKeyResponse* response) override {
    return new GetCall(meeting_, request->key(), response);
  }

 private:
  static grpc::ServerUnaryReactor* Finished(grpc::CallbackServerContext* context,
                                            const absl::Status& status) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }

  const std::shared_ptr<Meeting> meeting_;
};

class Host final : public Rendezvous, private Meeting::Listener {
 public:
  explicit Host(const MeetingMember& member)
      : member_(member),
        meeting_(std::make_shared<Meeting>(member.world_size, member.run)),
        service_(meeting_) {}

  ~Host() override {
    meeting_->Leave(member_.rank);
    meeting_->Close();
    meeting_->Remove(member_.rank, this);
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kShutdownTime);
  }

  absl::Status Listen(const Address& address) {
    TakeGrpcLog([](const std::string&) {});
    const absl::Status status = TryListen(address);
    if (status.ok()) return status;
    // The others may know this machine by an address that it does not know itself.
    if (IsLoopback(address.host)) return status;
    return TryListen({"::", address.port}).ok() ? absl::OkStatus() : status;
  }

  absl::StatusOr<std::vector<uint32_t>> Join(
      absl::Duration timeout, std::function<void(const absl::Status&)> lost) override {
    {
      absl::MutexLock lock(&mutex_);
      lost_ = std::move(lost);
    }
    RETURN_IF_ERROR(meeting_->Join(member_, this));
    const absl::Time deadline = absl::Now() + timeout;
    {
      absl::MutexLock lock(&mutex_);
      while (node_of_rank_.empty() && loss_.ok() && !changed_.WaitWithDeadline(&mutex_, deadline)) {
      }
      if (!loss_.ok()) return loss_;
      if (!node_of_rank_.empty()) return node_of_rank_;
    }
    // Without the lock, which the meeting takes after its own.
    return collectives::PeersMissing("process group", meeting_->Missing(kNamedRanks), timeout);
  }

  absl::Status Put(absl::string_view key, absl::string_view value) override {
    return meeting_->Put(std::string(key), std::string(value));
  }

  absl::StatusOr<std::string> Get(absl::string_view key, absl::Duration timeout) override {
    // The answer may come when nobody waits any more.
    struct Waiting {
      absl::Mutex mutex;
      absl::CondVar answered;
      std::optional<absl::StatusOr<std::string>> answer;
    };
    const auto waiting = std::make_shared<Waiting>();
    const uint64_t id =
        meeting_->Get(std::string(key), [waiting](absl::StatusOr<std::string> answer) {
          absl::MutexLock lock(&waiting->mutex);
          waiting->answer = std::move(answer);
          waiting->answered.SignalAll();
        });
    const absl::Time deadline = absl::Now() + timeout;
    {
      absl::MutexLock lock(&waiting->mutex);
      while (!waiting->answer.has_value() &&
             !waiting->answered.WaitWithDeadline(&waiting->mutex, deadline)) {
      }
      if (waiting->answer.has_value()) return *waiting->answer;
    }
    meeting_->Cancel(id);
    return absl::DeadlineExceededError(
        absl::StrCat("no key ", key, " within ", absl::FormatDuration(timeout)));
  }

 private:
  absl::Status TryListen(const Address& address) {
    RETURN_IF_ERROR(CheckListen(address));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address.ToString(), grpc::InsecureServerCredentials(), &port);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // A machine that is gone closes nothing.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                               kKeepaliveMs / 2);
    builder.SetMaxReceiveMessageSize(2 * limits::kValueBytes);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ != nullptr && port != 0) return absl::OkStatus();
    server_ = nullptr;
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address.ToString()));
  }

  void Complete(const std::vector<uint32_t>& node_of_rank) override {
    absl::MutexLock lock(&mutex_);
    node_of_rank_ = node_of_rank;
    changed_.SignalAll();
  }
  void Lost(uint32_t rank) override {
    absl::MutexLock lock(&mutex_);
    if (!loss_.ok()) return;
    loss_ = collectives::PeerLost(rank, "went away");
    changed_.SignalAll();
    lost_(loss_);
  }
  void End(const absl::Status&) override {}

  const MeetingMember member_;
  const std::shared_ptr<Meeting> meeting_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;

  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::function<void(const absl::Status&)> lost_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> node_of_rank_ ABSL_GUARDED_BY(mutex_);
  absl::Status loss_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Rendezvous>> HostRendezvous(const Address& address,
                                                           const MeetingMember& member) {
  auto host = std::make_unique<Host>(member);
  RETURN_IF_ERROR(host->Listen(address));
  return {std::move(host)};
}

}  // namespace muster
