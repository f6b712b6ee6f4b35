#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "collectives/peer_status.h"
#include "common/grpc/channel.h"
#include "common/grpc/deadline.h"
#include "common/grpc/status.h"
#include "common/status.h"
#include "common/time/deadline.h"
#include "common/time/steady_cond_var.h"
#include "grpcpp/client_context.h"
#include "process_group/rendezvous.h"
#include "proto/muster/v1/process_group.grpc.pb.h"

namespace muster {
namespace {

// Reconnect backoff: rank 0 may start listening a moment later.
constexpr int kFirstRetryMs = 50;
constexpr int kLastRetryMs = 500;
constexpr int kKeepaliveMs = 10000;
// Deadline of calls that rank 0 answers at once.
constexpr absl::Duration kAnswerTime = absl::Seconds(2);
constexpr absl::Duration kLastWordTime = absl::Milliseconds(500);

std::shared_ptr<grpc::Channel> Open(const Address& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstRetryMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kLastRetryMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLastRetryMs);
  // Keepalive, because a crashed machine does not close its connections.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // An earlier group in this process may have used another server at the same address.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return OpenChannel(address.ToString(), arguments);
}

void SetDeadline(absl::Duration timeout, grpc::ClientContext* context) {
  context->set_deadline(GrpcDeadline(timeout));
}

class Remote final : public Rendezvous {
 public:
  Remote(const Address& address, const ProcessGroupMember& member)
      : address_(address.ToString()),
        member_(member),
        stub_(v1::ProcessGroupService::NewStub(Open(address))) {}

  ~Remote() override {
    if (!thread_.joinable()) return;
    {
      absl::MutexLock lock(&mutex_);
      leaving_ = true;
    }
    v1::LeaveRequest request;
    request.set_rank(member_.rank);
    v1::LeaveResponse response;
    grpc::ClientContext context;
    SetDeadline(kAnswerTime, &context);
    // The result is ignored: rank 0 may have left already.
    stub_->Leave(&context, request, &response);
    join_context_.TryCancel();
    thread_.join();
  }

  absl::StatusOr<std::vector<uint32_t>> Join(
      absl::Duration timeout, std::function<void(const absl::Status&)> lost) override {
    const Deadline deadline(timeout);
    thread_ = std::thread([this, lost = std::move(lost)] { RunJoin(lost); });
    {
      absl::MutexLock lock(&mutex_);
      while (node_of_rank_.empty() && failure_.ok() && !changed_.WaitUntil(&mutex_, deadline)) {
      }
      if (!failure_.ok()) return failure_;
      if (!node_of_rank_.empty()) return node_of_rank_;
    }
    v1::ListMissingResponse response;
    grpc::ClientContext context;
    SetDeadline(kAnswerTime, &context);
    const grpc::Status status = stub_->ListMissing(&context, v1::ListMissingRequest(), &response);
    if (status.ok() && response.ranks_size() > 0) {
      return collectives::PeersMissing("process group",
                                       {response.ranks().begin(), response.ranks().end()}, timeout);
    }
    {
      // If rank 0 has timed out at the same time, its reason arrives on the stream.
      absl::MutexLock lock(&mutex_);
      const Deadline end(kLastWordTime);
      while (failure_.ok() && !changed_.WaitUntil(&mutex_, end)) {
      }
      if (!failure_.ok()) return failure_;
    }
    absl::Status missing = absl::DeadlineExceededError(absl::StrCat(
        "rank 0 did not respond at ", address_, " within ", absl::FormatDuration(timeout)));
    collectives::SetPeerRank(0, &missing);
    return missing;
  }

  absl::Status Put(absl::string_view key, absl::string_view value) override {
    RETURN_IF_ERROR(failure());
    v1::PutGroupKeyRequest request;
    request.set_key(std::string(key));
    request.set_value(std::string(value));
    v1::PutGroupKeyResponse response;
    grpc::ClientContext context;
    SetDeadline(kAnswerTime * 10, &context);
    const absl::Status status = FromGrpcStatus(stub_->Put(&context, request, &response));
    if (status.ok()) return status;
    RETURN_IF_ERROR(failure());
    return Annotate(status, absl::StrCat("rank 0 at ", address_));
  }

  absl::StatusOr<std::string> Get(absl::string_view key, absl::Duration timeout) override {
    RETURN_IF_ERROR(failure());
    v1::GetGroupKeyRequest request;
    request.set_key(std::string(key));
    v1::GetGroupKeyResponse response;
    grpc::ClientContext context;
    SetDeadline(timeout, &context);
    const absl::Status status = FromGrpcStatus(stub_->Get(&context, request, &response));
    if (status.ok()) return std::move(*response.mutable_value());
    RETURN_IF_ERROR(failure());
    if (absl::IsDeadlineExceeded(status)) {
      return absl::DeadlineExceededError(absl::StrCat(
          "timed out after ", absl::FormatDuration(timeout), " waiting for key ", key));
    }
    return Annotate(status, absl::StrCat("rank 0 at ", address_));
  }

 private:
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return failure_;
  }

  void RunJoin(const std::function<void(const absl::Status&)>& lost) {
    v1::JoinGroupRequest request;
    request.set_rank(member_.rank);
    request.set_world_size(member_.world_size);
    request.set_run(member_.run);
    request.set_host(member_.host);
    join_context_.set_wait_for_ready(true);
    const auto reader = stub_->Join(&join_context_, request);
    bool complete = false;
    for (v1::JoinGroupResponse response; reader->Read(&response);) {
      if (!complete && response.node_of_rank_size() == static_cast<int>(member_.world_size)) {
        complete = true;
        absl::MutexLock lock(&mutex_);
        node_of_rank_.assign(response.node_of_rank().begin(), response.node_of_rank().end());
        changed_.SignalAll();
      } else {
        Fail(collectives::PeerLost(response.lost_rank(), "went away"), lost);
      }
    }
    const absl::Status status = FromGrpcStatus(reader->Finish());
    if (status.ok()) {
      // Normal end: operations among the other ranks continue.
      Fail(absl::UnavailableError("rank 0, which hosts the key store, has left the group"),
           nullptr);
    } else if (absl::IsUnavailable(status) || absl::IsInternal(status)) {
      Fail(collectives::PeerLost(0, absl::StrCat("at ", address_, " went away")), lost);
    } else {
      Fail(status, lost);
    }
  }

  // Only the first failure counts.
  void Fail(const absl::Status& status, const std::function<void(const absl::Status&)>& lost) {
    absl::MutexLock lock(&mutex_);
    if (leaving_ || !failure_.ok()) return;
    failure_ = status;
    changed_.SignalAll();
    if (lost != nullptr) lost(status);
  }

  const std::string address_;
  const ProcessGroupMember member_;
  const std::unique_ptr<v1::ProcessGroupService::Stub> stub_;
  grpc::ClientContext join_context_;

  mutable absl::Mutex mutex_;
  SteadyCondVar changed_;
  std::vector<uint32_t> node_of_rank_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // runs RunJoin
};

}  // namespace

std::unique_ptr<Rendezvous> ReachRendezvous(const Address& address,
                                            const ProcessGroupMember& member) {
  return std::make_unique<Remote>(address, member);
}

}  // namespace muster
