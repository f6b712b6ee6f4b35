// Asks other workers about the leases of this node's ranks.
#ifndef MUSTER_WORKER_AGENT_LEASE_PEER_CLIENT_H_
#define MUSTER_WORKER_AGENT_LEASE_PEER_CLIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
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

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LEASE_PEER_CLIENT_H_
