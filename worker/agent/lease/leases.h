// The leases of this node's ranks: extends them as the coordinator acknowledges this worker, asks
// peers when it does not, and answers peers.
#ifndef MUSTER_WORKER_AGENT_LEASE_LEASES_H_
#define MUSTER_WORKER_AGENT_LEASE_LEASES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/client_security.h"
#include "common/time.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/generation/generation_table.h"
#include "worker/agent/lease/lease_keeper.h"
#include "worker/agent/lease/peer_client.h"
#include "worker/agent/lease/peer_server.h"
#include "worker/agent/membership.h"

namespace muster::agent {

// Must be created and destroyed outside the loop; the other methods are called on it, except
// peer_address.
class Leases {
 public:
  struct Options {
    std::string node_name;
    uint64_t incarnation = 0;
    std::string coordinator;
    security::ClientSecurity security;
    std::string peer_listen;  // HOST:PORT; empty: DefaultPeerListen
    // Keeps the addresses of peers for the next worker, which may start without a coordinator.
    std::string peers_file;
    // Whether the coordinator that gave an answer decides on the ranks of this node. Must outlive
    // the leases.
    const Membership* membership = nullptr;
  };
  using Send = std::function<void(v1::WorkerMessage)>;

  // Loop and table must outlive the leases. Errors: those of PeerServer::Start.
  static absl::StatusOr<std::unique_ptr<Leases>> Start(Options options, EventLoop& loop,
                                                       GenerationTable& table, Send send);

  void OnWelcome(const v1::Welcome& welcome);
  // The coordinator has acknowledged a Hello or heartbeat that was sent at `sent` (BootNow), and
  // named new peers, if any.
  void OnAcknowledged(SteadyTime sent, const std::vector<std::string>& peers);
  // The coordinator's answer to a question that this worker forwarded.
  void OnAnswer(const v1::LeaseAnswer& answer);
  void Tick();
  // Instructions::lease_deadline_ms for a rank that is about to be started; 0 without a lease.
  int64_t DeadlineMs(absl::Duration job_lease) const;

  // Hello.peer_address. Thread-safe.
  const std::string& peer_address() const { return peer_address_; }

 private:
  Leases(Options options, EventLoop& loop, GenerationTable& table, Send send);

  LeaseKeeper::Outside MakeOutside();
  bool Forward(const v1::LeaseQuestion& question);
  void ReadPeers();
  void SetPeers(const std::vector<std::string>& peers);

  const Options options_;
  GenerationTable& table_;
  const Send send_;
  std::string peer_address_;
  absl::Duration heartbeat_interval_ = absl::Seconds(1);
  std::vector<std::string> peers_;
  LeaseKeeper keeper_;
  // Declared last, because they use the members above until they are destroyed.
  PeerClient client_;
  std::unique_ptr<PeerServer> server_;  // null where security allows none
};

// The address to serve peers on: all interfaces with a certificate; loopback without, if the
// coordinator is on this machine, too; otherwise none, because others could read the token.
std::string DefaultPeerListen(const std::string& coordinator, const security::TlsFiles& tls);

// Checks --peer-listen; returns an error message, or "".
std::string CheckPeerListen(const std::string& listen, const security::TlsFiles& tls);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LEASE_LEASES_H_
