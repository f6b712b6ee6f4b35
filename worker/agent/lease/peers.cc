#include "worker/agent/lease/peers.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/grpc/deadline.h"
#include "common/grpc/listener.h"
#include "common/grpc/status.h"
#include "common/report_bounds.h"
#include "common/security/call_metadata.h"
#include "common/security/certificate.h"
#include "common/security/server_credentials.h"
#include "common/sha256.h"
#include "common/status.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/muster/v1/worker.grpc.pb.h"
#include "worker/agent/session/coordinator_channel.h"

namespace muster::agent {
namespace {

// Questions in progress. More would be refused by the coordinator's session, too.
constexpr size_t kMaxCalls = 256;
// Enough for a question about the running generations of a node.
constexpr int kMessageBytes = 1 << 20;

class PeerServerImpl final : public PeerServer, public v1::PeerService::CallbackService {
 public:
  PeerServerImpl(const Options& options, EventLoop& loop, Ask ask)
      : options_(options), loop_(loop), ask_(std::move(ask)) {}

  absl::Status Listen() {
    ASSIGN_OR_RETURN(address_, ParseAddress(options_.listen));
    ASSIGN_OR_RETURN(listener_, GrpcListener::Open(address_));
    address_.port = listener_->port();
    grpc::ServerBuilder builder;
    listener_->AddTo(builder, security::ServerCredentials(options_.security.tls));
    builder.SetMaxReceiveMessageSize(kMessageBytes);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      return absl::UnavailableError(
          absl::StrCat("--peer-listen=", options_.listen, ": failed to start the gRPC server"));
    }
    listener_->Start();
    return absl::OkStatus();
  }

  ~PeerServerImpl() override {
    if (server_ == nullptr) return;
    listener_->Stop();
    server_->Shutdown(GrpcDeadline(absl::ZeroDuration()));
    {
      absl::MutexLock lock(&mutex_);
      for (const auto& [id, call] : calls_) Finish(*call, absl::UnavailableError("shutting down"));
    }
    server_->Wait();
    // Waits for the closures that were posted for this server.
    loop_.RunAndWait([] {});
  }

  grpc::ServerUnaryReactor* AskLease(grpc::CallbackServerContext* context,
                                     const v1::LeaseQuestion* question,
                                     v1::PeerAnswer* answer) override {
    auto* const call = new Call(this, answer);
    absl::Status allowed = Authorize(*context);
    if (allowed.ok()) listener_->OnAuthenticated(*context);
    // The coordinator would close this worker's session for larger values.
    if (allowed.ok()) allowed = CheckBounds(*question);
    absl::MutexLock lock(&mutex_);
    if (!allowed.ok()) {
      Finish(*call, allowed);
      return call;
    }
    if (calls_.size() >= kMaxCalls) {
      Finish(*call, absl::ResourceExhaustedError("too many questions about leases"));
      return call;
    }
    const uint64_t id = call->id = next_id_++;
    calls_[id] = call;
    v1::LeaseQuestion numbered = *question;
    numbered.set_id(id);
    loop_.Post([this, numbered = std::move(numbered)] { ask_(numbered); });
    return call;
  }

  void Answer(uint64_t id, v1::PeerAnswer answer) override {
    absl::MutexLock lock(&mutex_);
    const auto call = calls_.find(id);
    if (call == calls_.end() || call->second->finished) return;
    *call->second->answer = std::move(answer);
    Finish(*call->second, absl::OkStatus());
  }

  const Address& address() const override { return address_; }

 private:
  struct Call final : grpc::ServerUnaryReactor {
    Call(PeerServerImpl* server, v1::PeerAnswer* call_answer)
        : owner(server), answer(call_answer) {}
    void OnCancel() override { owner->End(id, absl::CancelledError("the caller has cancelled")); }
    void OnDone() override {
      owner->Remove(id);
      delete this;
    }

    PeerServerImpl* const owner;
    v1::PeerAnswer* const answer;
    uint64_t id = 0;
    bool finished = false;
  };

  absl::Status Authorize(const grpc::CallbackServerContext& context) const {
    // The TLS handshake has verified the caller's certificate.
    if (!options_.security.tls.cert.empty() && !options_.security.tls.ca.empty()) {
      return absl::OkStatus();
    }
    const absl::StatusOr<security::ClientToken> own =
        FindToken(options_.security, options_.coordinator);
    if (!own.ok()) return absl::UnauthenticatedError("this worker has no token to compare with");
    const auto& metadata = context.client_metadata();
    const auto token = metadata.find(security::kTokenKey);
    const std::string expected = absl::StrCat(security::kTokenPrefix, own->token);
    // Digests, so that the time of the comparison reveals nothing about the token.
    if (token == metadata.end() ||
        Sha256Hex({token->second.data(), token->second.size()}) != Sha256Hex(expected)) {
      return absl::UnauthenticatedError("the token of the call is not that of this worker");
    }
    return absl::OkStatus();
  }

  void Finish(Call& call, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (std::exchange(call.finished, true)) return;
    call.Finish(ToGrpcStatus(status));
  }
  void End(uint64_t id, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const auto call = calls_.find(id);
    if (call != calls_.end()) Finish(*call->second, status);
  }
  void Remove(uint64_t id) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    calls_.erase(id);
  }

  const Options options_;
  EventLoop& loop_;
  const Ask ask_;
  Address address_;
  absl::Mutex mutex_;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Call*> calls_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<GrpcListener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

struct PeerClient::Call {
  std::unique_ptr<v1::PeerService::Stub> stub;
  grpc::ClientContext context;
  v1::PeerAnswer answer;
  grpc::Status status;
};

struct PeerClient::Round {
  Answered answered;
  Done done;
  size_t left = 0;
  v1::LeaseQuestion question;
};

PeerClient::PeerClient(std::string coordinator, security::ClientSecurity security, EventLoop& loop)
    : coordinator_(std::move(coordinator)), security_(std::move(security)), loop_(loop) {}

PeerClient::~PeerClient() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    for (const std::weak_ptr<Call>& call : in_progress_) {
      if (const std::shared_ptr<Call> live = call.lock()) live->context.TryCancel();
    }
    mutex_.Await(absl::Condition(
        +[](int* calls) { return *calls == 0; }, &calls_));
  }
  // Waits for the closures that were posted for this client.
  loop_.RunAndWait([] {});
}

void PeerClient::Ask(const std::vector<std::string>& peers, const v1::LeaseQuestion& question,
                     absl::Duration patience, Answered answered, Done done) {
  auto round = std::make_shared<Round>();
  round->answered = std::move(answered);
  round->done = std::move(done);
  round->question = question;
  security::ClientSecurity security = security_;
  security.token_file.clear();
  security.token.clear();
  // Certificates of nodes are not for their addresses.
  if (security.has_node_certificate) security.server_name = security::kNodeHost;
  // A client certificate takes the place of the token, which is for the coordinator.
  if (security.tls.cert.empty()) {
    if (const auto token = FindToken(security_, coordinator_); token.ok()) {
      security.token = token->token;
    }
  }
  std::vector<std::shared_ptr<Call>> calls;
  for (const std::string& peer : peers) {
    auto call = std::make_shared<Call>();
    call->stub = v1::PeerService::NewStub(OpenCoordinatorChannel(peer, security));
    call->context.set_deadline(GrpcDeadline(patience));
    calls.push_back(std::move(call));
  }
  round->left = calls.size();
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    calls_ += static_cast<int>(round->left);
    std::erase_if(in_progress_, [](const auto& call) { return call.expired(); });
    in_progress_.insert(in_progress_.end(), calls.begin(), calls.end());
  }
  if (round->left == 0) return loop_.Post([round] { round->done(); });
  // Without the lock, because gRPC may call back at once.
  for (const std::shared_ptr<Call>& call : calls) {
    call->stub->async()->AskLease(
        &call->context, &round->question, &call->answer,
        // The loop destroys the channel, which must not happen on a gRPC thread.
        [this, round, call](const grpc::Status& status) mutable {
          call->status = status;
          loop_.Post(
              [this, round = std::move(round), call = std::move(call)] { OnAnswer(round, *call); });
          absl::MutexLock lock(&mutex_);
          --calls_;
        });
  }
}

void PeerClient::OnAnswer(const std::shared_ptr<Round>& round, const Call& call) {
  --round->left;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
  }
  if (call.status.ok()) round->answered(call.answer);
  if (round->left == 0) round->done();
}

absl::StatusOr<std::unique_ptr<PeerServer>> PeerServer::Start(const Options& options,
                                                              EventLoop& loop, Ask ask) {
  auto server = std::make_unique<PeerServerImpl>(options, loop, std::move(ask));
  RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace muster::agent
