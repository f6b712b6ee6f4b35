// The gRPC side of RankService on the node's unix socket: from calls to the generation table and
// back.
#ifndef MUSTER_WORKER_AGENT_RANK_RANK_SERVICE_H_
#define MUSTER_WORKER_AGENT_RANK_RANK_SERVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/generation/generation_table.h"

namespace muster::agent {

// A call that waits holds no thread; one that its rank gave up leaves no waiter behind.
class RankServer {
 public:
  // Listens on the unix socket at `path`, whose directory only this user may enter. Loop and table
  // must outlive the server, and the loop must run until it is destroyed. Errors: INTERNAL when the
  // socket cannot be had.
  static absl::StatusOr<std::unique_ptr<RankServer>> Start(const std::string& path, EventLoop& loop,
                                                           GenerationTable& table);
  // Ranks' calls under way end with UNAVAILABLE: they come again to the next worker.
  virtual ~RankServer() = default;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_RANK_RANK_SERVICE_H_
