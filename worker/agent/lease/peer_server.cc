#include "worker/agent/lease/peer_server.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/grpc_deadline.h"
#include "common/grpc_listener.h"
#include "common/grpc_status.h"
#include "common/report_bounds.h"
#include "common/security/call_metadata.h"
#include "common/security/server_credentials.h"
#include "common/sha256.h"
#include "common/status.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/muster/v1/worker.grpc.pb.h"

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

absl::StatusOr<std::unique_ptr<PeerServer>> PeerServer::Start(const Options& options,
                                                              EventLoop& loop, Ask ask) {
  auto server = std::make_unique<PeerServerImpl>(options, loop, std::move(ask));
  RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace muster::agent
