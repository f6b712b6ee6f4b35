// Finds out whether the coordinator's process has ended although its machine still runs: a new
// connection to its address is then refused.
//
// A refusal proves that no coordinator listened when the connection was begun, and a coordinator
// that starts later grants every node a full lease from when it listens. Nothing else proves it: a
// living coordinator resets connections that it closes, and routers and firewalls answer with
// ICMP.
#ifndef MUSTER_WORKER_AGENT_LEASE_REFUSAL_PROBE_H_
#define MUSTER_WORKER_AGENT_LEASE_REFUSAL_PROBE_H_

#include <functional>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "common/files/owned_fd.h"
#include "worker/agent/event_loop.h"

namespace muster::agent {

// Must be used and destroyed on the loop.
class RefusalProbe {
 public:
  using Done = std::function<void(bool refused)>;

  explicit RefusalProbe(EventLoop& loop) : loop_(loop) {}
  // Ends the connections in progress without calling their `done`.
  ~RefusalProbe();
  RefusalProbe(const RefusalProbe&) = delete;
  RefusalProbe& operator=(const RefusalProbe&) = delete;

  // Connects to `address`, a numeric IP address and port as gRPC names peers
  // ("ipv4:10.0.0.1:7070", "ipv6:[::1]:7070"), and calls `done` once, later: with true if the host
  // refused the connection by a TCP reset within `patience`, with false in all other cases.
  void Start(const std::string& address, absl::Duration patience, Done done);

 private:
  struct Connection {
    OwnedFd socket;
    EventLoop::TimerId timer;
    Done done;
  };

  void End(int fd, bool refused);

  EventLoop& loop_;
  std::map<int, Connection> connections_;  // by file descriptor
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LEASE_REFUSAL_PROBE_H_
