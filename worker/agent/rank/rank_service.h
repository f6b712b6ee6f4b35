// gRPC server of RankService on the node's unix socket: passes calls to the generation table and
// returns its answers.
#ifndef MUSTER_WORKER_AGENT_RANK_RANK_SERVICE_H_
#define MUSTER_WORKER_AGENT_RANK_RANK_SERVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/generation/generation_table.h"

namespace muster::agent {

// Waiting calls do not block threads, and a cancelled call leaves no waiter behind.
class RankServer {
 public:
  // Listens on the unix socket at `path`. With `has_job_users`, all users may connect to it, and
  // only their tokens tell ranks from others; otherwise only this user may. Loop and table must
  // outlive the server, and the loop must run until the server is destroyed. INTERNAL if it cannot
  // listen.
  static absl::StatusOr<std::unique_ptr<RankServer>> Start(const std::string& path, EventLoop& loop,
                                                           GenerationTable& table,
                                                           bool has_job_users);
  // Ends pending calls with UNAVAILABLE; ranks repeat them to the next server.
  virtual ~RankServer() = default;

  // Whether the socket is still at its path. Thread-safe.
  virtual bool IsReachable() const = 0;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_RANK_RANK_SERVICE_H_
