// The leases of this node's ranks: extends them as the coordinator acknowledges this worker, looks
// for other evidence when it does not, and gives evidence to peers.
#ifndef MUSTER_WORKER_AGENT_LEASE_LEASES_H_
#define MUSTER_WORKER_AGENT_LEASE_LEASES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/client_security.h"
#include "common/time/time.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/generation/generation_table.h"
#include "worker/agent/lease/lease_keeper.h"
#include "worker/agent/lease/lease_lines.h"
#include "worker/agent/lease/peers.h"
#include "worker/agent/lease/promises.h"
#include "worker/agent/lease/refusal_probe.h"
#include "worker/agent/session/membership.h"

namespace muster::agent {

// The coordinator and the peers that answer for it, kept in a file for the next worker. Must be
// used on the loop's thread.
class KnownPeers {
 public:
  // Reads the file, which may not exist.
  explicit KnownPeers(std::string file);
  // The coordinator that last acknowledged; empty: unknown.
  const std::string& coordinator() const { return coordinator_; }
  const std::vector<std::string>& peers() const { return peers_; }
  // No `peers` leave the known ones.
  void Set(const std::string& coordinator, const std::vector<std::string>& peers);

 private:
  const std::string file_;
  std::string coordinator_;
  std::vector<std::string> peers_;
};

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
    // Keep the addresses of peers and what this worker has promised for the next worker, which may
    // start without a coordinator.
    std::string peers_file;
    std::string promises_file;
    // Whether a refused connection proves that the coordinator's process has ended. It does not if
    // something else than its machine answers at its address, such as a proxy.
    bool trusts_refusals = true;
    // Whether the coordinator that gave an answer decides on the ranks of this node. Must outlive
    // the leases.
    const Membership* membership = nullptr;
    // The same acknowledgements, as they arrive. Must outlive the leases.
    const LeaseLines* lines = nullptr;
  };
  using Send = std::function<void(v1::WorkerMessage)>;

  // Loop and table must outlive the leases. Errors: those of PeerServer::Start.
  static absl::StatusOr<std::unique_ptr<Leases>> Start(Options options, EventLoop& loop,
                                                       GenerationTable& table, Send send);
  ~Leases();

  void OnWelcome(const v1::Welcome& welcome);
  // The coordinator at `address` (Session::Events) has acknowledged a Hello or heartbeat that was
  // sent at `sent` (BootNow), and named new peers, if any.
  void OnAcknowledged(SteadyTime sent, const std::string& address,
                      const std::vector<std::string>& peers);
  // The coordinator's answer to a question that this worker forwarded.
  void OnAnswer(const v1::LeaseAnswer& answer);
  void OnFenceSet(const v1::FenceSet& set);
  void OnBans(const v1::Bans& bans);
  // Hello.fence_set.
  uint64_t fence_set() const { return promises_.fence_set().id(); }
  void Tick();
  // Instructions::lease_deadline_ms for a rank that is about to be started; 0 without a deadline.
  int64_t DeadlineMs(const v1::Launch& launch);

  // Hello.peer_address. Thread-safe.
  const std::string& peer_address() const { return peer_address_; }

 private:
  Leases(Options options, EventLoop& loop, GenerationTable& table, Send send);

  LeaseKeeper::Outside MakeOutside();
  LeaseWitness::Outside MakeWitnessOutside();
  // Calls `done` with the time at which the connection was begun if the coordinator's address
  // refuses one.
  void Probe(absl::Duration patience, std::function<void(std::optional<SteadyTime>)> done);

  const Options options_;
  EventLoop& loop_;
  GenerationTable& table_;
  const Send send_;
  std::string peer_address_;
  absl::Duration heartbeat_interval_ = absl::Seconds(1);
  KnownPeers known_;
  Promises promises_;
  LeaseKeeper keeper_;
  LeaseWitness witness_;
  std::optional<RefusalProbe> probe_;  // exists only on the loop
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
