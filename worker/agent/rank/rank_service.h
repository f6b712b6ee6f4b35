// gRPC server of RankService on the node's unix socket: passes calls to the generation table and
// returns its answers.
#ifndef MUSTER_WORKER_AGENT_RANK_RANK_SERVICE_H_
#define MUSTER_WORKER_AGENT_RANK_RANK_SERVICE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/generation/generation_table.h"
#include "worker/agent/storage/sweeper.h"

namespace muster::agent {

// Waiting calls do not block threads, and a cancelled call leaves no waiter behind.
class RankServer {
 public:
  // Listens on the unix socket at `path`, and makes its directory. With `has_job_users`, all users
  // may connect to it, and only their tokens tell ranks from others; otherwise only this user may.
  // Loop and table must outlive the server, and the loop must run until the server is destroyed.
  // INTERNAL if it cannot listen.
  static absl::StatusOr<std::unique_ptr<RankServer>> Start(
      std::string path, EventLoop& loop, GenerationTable& table, bool has_job_users,
      std::function<void(const absl::Status&)> on_failure);
  // Ends pending calls with UNAVAILABLE; ranks repeat them to the next server. No check may be
  // pending: call Sweeper::Drain.
  virtual ~RankServer() = default;

  // Listens again if a job has removed or replaced the socket: no rank that starts could join
  // otherwise. Checks on the sweeper's thread, because a gRPC server needs the agent's loop to end;
  // if it cannot listen, calls `on_failure` there with FAILED_PRECONDITION. Without effect while a
  // check is pending. Called on the agent's loop.
  virtual void CheckOn(Sweeper& sweeper) = 0;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_RANK_RANK_SERVICE_H_
