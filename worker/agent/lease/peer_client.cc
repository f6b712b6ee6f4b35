#include "worker/agent/lease/peer_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/grpc_deadline.h"
#include "common/security/certificate.h"
#include "grpcpp/client_context.h"
#include "proto/muster/v1/worker.grpc.pb.h"
#include "worker/agent/coordinator_channel.h"

namespace muster::agent {

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

}  // namespace muster::agent
