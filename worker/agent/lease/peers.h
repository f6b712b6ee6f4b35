// Questions between workers about the leases of their ranks: asks other workers, and receives their
// questions.
#ifndef MUSTER_WORKER_AGENT_LEASE_PEERS_H_
#define MUSTER_WORKER_AGENT_LEASE_PEERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/http/address.h"
#include "common/security/client_security.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/event_loop.h"

namespace muster::agent {

// Must be created and destroyed outside the loop, and used on it.
class PeerClient {
 public:
  using Answered = std::function<void(const v1::PeerAnswer&)>;
  using Done = std::function<void()>;

  // Calls carry the credentials for `coordinator`. The loop must outlive the client.
  PeerClient(std::string coordinator, security::ClientSecurity security, EventLoop& loop);
  // Cancels the questions in progress, whose closures are not called any more.
  ~PeerClient();
  PeerClient(const PeerClient&) = delete;
  PeerClient& operator=(const PeerClient&) = delete;

  // Asks all peers (HOST:PORT) at once. Calls `answered` on the loop, later, for each that answers
  // within `patience`, then `done`.
  void Ask(const std::vector<std::string>& peers, const v1::LeaseQuestion& question,
           absl::Duration patience, Answered answered, Done done);

 private:
  struct Round;
  struct Call;

  void OnAnswer(const std::shared_ptr<Round>& round, const Call& call);

  const std::string coordinator_;
  const security::ClientSecurity security_;
  EventLoop& loop_;
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::weak_ptr<Call>> in_progress_ ABSL_GUARDED_BY(mutex_);
};

// Must be created and destroyed outside the loop.
class PeerServer {
 public:
  struct Options {
    std::string listen;       // HOST:PORT
    std::string coordinator;  // address whose token callers must have
    // With a certificate, the server uses TLS; with a CA as well, it requires a client certificate,
    // which takes the place of the token.
    security::ClientSecurity security;
  };
  // Called on the loop for each question, whose id is unique. Answer must be called with the same
  // id, unless the caller loses patience before.
  using Ask = std::function<void(const v1::LeaseQuestion& question)>;

  // Errors: those of the address, ALREADY_EXISTS for one in use. The loop must outlive the server.
  static absl::StatusOr<std::unique_ptr<PeerServer>> Start(const Options& options, EventLoop& loop,
                                                           Ask ask);
  // Ends the calls in progress.
  virtual ~PeerServer() = default;

  // Answers the question with this id, if it is still open. Must be called on the loop.
  virtual void Answer(uint64_t id, v1::PeerAnswer answer) = 0;

  // The listening address, with the actual port.
  virtual const Address& address() const = 0;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LEASE_PEERS_H_
