#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "collectives/peer_status.h"
#include "common/grpc/deadline.h"
#include "common/grpc/log.h"
#include "common/grpc/status.h"
#include "common/limits.h"
#include "common/rendezvous/rendezvous_state.h"
#include "common/status.h"
#include "common/time/deadline.h"
#include "common/time/steady_cond_var.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "process_group/rendezvous.h"
#include "proto/muster/v1/process_group.grpc.pb.h"

namespace muster {
namespace {

constexpr size_t kNamedRanks = 1000;
constexpr int kKeepaliveMs = 10000;
constexpr absl::Duration kShutdownTime = absl::Milliseconds(500);

std::set<uint32_t> AllRanks(uint32_t world_size) {
  std::set<uint32_t> ranks;
  for (uint32_t rank = 0; rank < world_size; ++rank) ranks.insert(ranks.end(), rank);
  return ranks;
}

RendezvousState::WaitId NextWaitId() {
  static std::atomic<RendezvousState::WaitId> next{1};
  return next.fetch_add(1);
}

// State that rank 0 keeps for all ranks of a process group. Thread-safe.
struct GroupState {
  explicit GroupState(const ProcessGroupMember& host)
      : world_size(host.world_size), run(host.run), rendezvous(AllRanks(host.world_size)) {}

  absl::Status Join(const ProcessGroupMember& member,
                    std::shared_ptr<RendezvousState::Listener> listener) {
    if (member.world_size != world_size || member.rank >= world_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", member.rank, " of ", member.world_size,
                       " does not match the group's world size of ", world_size));
    }
    if (member.run != run) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", member.rank, " belongs to another run of the program"));
    }
    return rendezvous.Join(member.rank, member.host, std::move(listener));
  }

  const uint32_t world_size;
  const std::string run;
  RendezvousState rendezvous;
};

// Server side of a rank's Join stream. Lives until OnDone and while a listener callback is running.
class JoinCall final : public grpc::ServerWriteReactor<v1::JoinGroupResponse>,
                       public RendezvousState::Listener {
 public:
  static JoinCall* Start(std::shared_ptr<GroupState> state, const v1::JoinGroupRequest& request) {
    const auto call = std::make_shared<JoinCall>(std::move(state), request.rank());
    call->self_ = call;
    const absl::Status status = call->state_->Join({.rank = request.rank(),
                                                    .world_size = request.world_size(),
                                                    .run = request.run(),
                                                    .host = request.host()},
                                                   call);
    call->joined_ = status.ok();
    if (!status.ok()) call->EndWith(status);
    return call.get();
  }

  JoinCall(std::shared_ptr<GroupState> state, uint32_t rank)
      : state_(std::move(state)), rank_(rank) {}

  void OnComplete(const std::vector<uint32_t>& node_of_rank) override {
    v1::JoinGroupResponse response;
    response.mutable_node_of_rank()->Add(node_of_rank.begin(), node_of_rank.end());
    Push(std::move(response));
  }
  void OnLost(uint32_t rank) override {
    v1::JoinGroupResponse response;
    response.set_lost_rank(rank);
    Push(std::move(response));
  }
  void OnClose(const absl::Status& status) override { EndWith(status); }

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
    // Called without the lock: OnDone may run at once.
    if (end.has_value()) Finish(ToGrpcStatus(*end));
  }
  void OnCancel() override {
    // A pending write ends with OnWriteDone.
    EndWith(absl::CancelledError("the rank disconnected"));
  }
  void OnDone() override {
    const std::shared_ptr<JoinCall> self = std::move(self_);
    if (joined_) state_->rendezvous.Remove(rank_);
  }

 private:
  // Does nothing once the stream has been ended.
  void Push(v1::JoinGroupResponse response) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (end_.has_value()) return;
    queue_.push_back(std::move(response));
    if (queue_.size() == 1) StartWrite(&queue_.front());
  }

  // Ends the stream after pending writes.
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

  const std::shared_ptr<GroupState> state_;
  const uint32_t rank_;
  std::shared_ptr<JoinCall> self_;
  bool joined_ = false;  // written before gRPC can call OnDone
  absl::Mutex mutex_;
  std::deque<v1::JoinGroupResponse> queue_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

class GetCall final : public grpc::ServerUnaryReactor {
 public:
  GetCall(std::shared_ptr<GroupState> state, const std::string& key,
          v1::GetGroupKeyResponse* response)
      : state_(std::move(state)) {
    // The callback may delete this object.
    const std::shared_ptr<GroupState> kept = state_;
    kept->rendezvous.Get(id_, key, [this, response](absl::StatusOr<std::string> value) {
      if (value.ok()) response->set_value(*std::move(value));
      Finish(ToGrpcStatus(value.status()));
    });
  }

  void OnCancel() override {
    const std::shared_ptr<GroupState> kept = state_;
    kept->rendezvous.AnswerOne(id_, absl::CancelledError("the caller disconnected"));
  }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<GroupState> state_;
  const RendezvousState::WaitId id_ = NextWaitId();
};

class Service final : public v1::ProcessGroupService::CallbackService {
 public:
  explicit Service(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}

  grpc::ServerWriteReactor<v1::JoinGroupResponse>* Join(
      grpc::CallbackServerContext*, const v1::JoinGroupRequest* request) override {
    return JoinCall::Start(state_, *request);
  }
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest* request, v1::LeaveResponse*) override {
    state_->rendezvous.Leave(request->rank());
    return Finished(context, absl::OkStatus());
  }
  grpc::ServerUnaryReactor* ListMissing(grpc::CallbackServerContext* context,
                                        const v1::ListMissingRequest*,
                                        v1::ListMissingResponse* response) override {
    for (const uint32_t rank : state_->rendezvous.Missing(kNamedRanks)) response->add_ranks(rank);
    return Finished(context, absl::OkStatus());
  }
  grpc::ServerUnaryReactor* Put(grpc::CallbackServerContext* context,
                                const v1::PutGroupKeyRequest* request,
                                v1::PutGroupKeyResponse*) override {
    return Finished(context, state_->rendezvous.Put(request->key(), request->value()));
  }
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext*, const v1::GetGroupKeyRequest* request,
                                v1::GetGroupKeyResponse* response) override {
    return new GetCall(state_, request->key(), response);
  }

 private:
  static grpc::ServerUnaryReactor* Finished(grpc::CallbackServerContext* context,
                                            const absl::Status& status) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }

  const std::shared_ptr<GroupState> state_;
};

// Receives rendezvous events in rank 0's own process. Thread-safe.
class HostListener final : public RendezvousState::Listener {
 public:
  explicit HostListener(std::function<void(const absl::Status&)> lost) : lost_(std::move(lost)) {}

  // After it returns, `lost` is neither running nor called again.
  void Detach() {
    absl::MutexLock lock(&mutex_);
    lost_ = nullptr;
  }

  // Returns the nodes by rank or the loss, or nullopt if neither occurs before `deadline`.
  std::optional<absl::StatusOr<std::vector<uint32_t>>> WaitForCompleteOrLoss(
      const Deadline& deadline) {
    absl::MutexLock lock(&mutex_);
    while (node_of_rank_.empty() && loss_.ok() && !changed_.WaitUntil(&mutex_, deadline)) {
    }
    if (!loss_.ok()) return loss_;
    if (!node_of_rank_.empty()) return node_of_rank_;
    return std::nullopt;
  }

  void OnComplete(const std::vector<uint32_t>& node_of_rank) override {
    absl::MutexLock lock(&mutex_);
    node_of_rank_ = node_of_rank;
    changed_.SignalAll();
  }
  void OnLost(uint32_t rank) override {
    absl::MutexLock lock(&mutex_);
    loss_ = collectives::PeerLost(rank, "went away");
    changed_.SignalAll();
    if (lost_ != nullptr) lost_(loss_);
  }
  void OnClose(const absl::Status&) override {}

 private:
  absl::Mutex mutex_;
  SteadyCondVar changed_;
  std::function<void(const absl::Status&)> lost_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> node_of_rank_ ABSL_GUARDED_BY(mutex_);
  absl::Status loss_ ABSL_GUARDED_BY(mutex_);
};

class Host final : public Rendezvous {
 public:
  explicit Host(const ProcessGroupMember& member)
      : member_(member), state_(std::make_shared<GroupState>(member)), service_(state_) {}

  ~Host() override {
    if (listener_ != nullptr) listener_->Detach();
    state_->rendezvous.Leave(member_.rank);
    state_->rendezvous.Close(
        absl::UnavailableError("rank 0, which hosts the key store, has left the group"));
    if (server_ != nullptr) server_->Shutdown(GrpcDeadline(kShutdownTime));
  }

  absl::Status Listen(const Address& address) {
    TakeGrpcLog([](const std::string&) {});
    const absl::Status status = TryListen(address);
    if (status.ok()) return status;
    // `address` may be one that other machines use but that is not local here, for example behind
    // NAT; then listen on all addresses.
    if (IsLoopback(address.host)) return status;
    return TryListen({"::", address.port}).ok() ? absl::OkStatus() : status;
  }

  absl::StatusOr<std::vector<uint32_t>> Join(
      absl::Duration timeout, std::function<void(const absl::Status&)> lost) override {
    listener_ = std::make_shared<HostListener>(std::move(lost));
    RETURN_IF_ERROR(state_->Join(member_, listener_));
    if (auto result = listener_->WaitForCompleteOrLoss(Deadline(timeout))) return *result;
    return collectives::PeersMissing("process group", state_->rendezvous.Missing(kNamedRanks),
                                     timeout);
  }

  absl::Status Put(absl::string_view key, absl::string_view value) override {
    return state_->rendezvous.Put(std::string(key), std::string(value));
  }

  absl::StatusOr<std::string> Get(absl::string_view key, absl::Duration timeout) override {
    // Shared with the callback, which may run after this function has returned.
    struct Waiting {
      absl::Mutex mutex;
      SteadyCondVar answered;
      std::optional<absl::StatusOr<std::string>> answer;
    };
    const auto waiting = std::make_shared<Waiting>();
    const RendezvousState::WaitId id = NextWaitId();
    state_->rendezvous.Get(id, std::string(key), [waiting](absl::StatusOr<std::string> answer) {
      absl::MutexLock lock(&waiting->mutex);
      waiting->answer = std::move(answer);
      waiting->answered.SignalAll();
    });
    const Deadline deadline(timeout);
    {
      absl::MutexLock lock(&waiting->mutex);
      while (!waiting->answer.has_value() &&
             !waiting->answered.WaitUntil(&waiting->mutex, deadline)) {
      }
      if (waiting->answer.has_value()) return *waiting->answer;
    }
    state_->rendezvous.AnswerOne(id, absl::CancelledError("the caller disconnected"));
    return absl::DeadlineExceededError(
        absl::StrCat("timed out after ", absl::FormatDuration(timeout), " waiting for key ", key));
  }

 private:
  absl::Status TryListen(const Address& address) {
    RETURN_IF_ERROR(CheckListen(address));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address.ToString(), grpc::InsecureServerCredentials(), &port);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Keepalive, because a crashed machine does not close its connections.
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

  const ProcessGroupMember member_;
  const std::shared_ptr<GroupState> state_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<HostListener> listener_;  // set by Join
};

}  // namespace

absl::StatusOr<std::unique_ptr<Rendezvous>> HostRendezvous(const Address& address,
                                                           const ProcessGroupMember& member) {
  auto host = std::make_unique<Host>(member);
  RETURN_IF_ERROR(host->Listen(address));
  return {std::move(host)};
}

}  // namespace muster
