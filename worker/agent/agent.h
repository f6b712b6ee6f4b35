// The worker daemon: creates its components and shuts them down in order.
#ifndef MUSTER_WORKER_AGENT_AGENT_H_
#define MUSTER_WORKER_AGENT_AGENT_H_

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/address.h"
#include "worker/agent/agent_options.h"

namespace muster::agent {

// Thread-safe.
class Agent {
 public:
  // Starts the agent. When it returns, ranks of an earlier worker have been adopted, the ranks'
  // socket and HTTP are served, and the session is being opened. `on_failure` is called on a thread
  // of the agent when the agent is of no use any more: the coordinator will never accept this
  // worker (see Session::Events), or FAILED_PRECONDITION if it cannot serve ranks. Errors:
  // INVALID_ARGUMENT, FAILED_PRECONDITION (another worker uses the data directory), or system
  // errors.
  static absl::StatusOr<std::unique_ptr<Agent>> Start(
      const AgentOptions& options, std::function<void(const absl::Status&)> on_failure);

  // Leaves the ranks running under their shims; the next worker adopts them.
  virtual ~Agent() = default;

  // Stops all ranks and accepts no new ones. `done` is called on a thread of the agent when no rank
  // is left. With a grace period, the ranks are stopped at once. Without one, the worker first
  // reports to the coordinator that it is leaving, so that the jobs can be moved away; ranks that
  // the coordinator has not stopped after a short time, or if it is unreachable, are stopped with
  // their jobs' grace periods. May be called again to shorten the grace period; then only the last
  // `done` is called.
  virtual void StopRanks(std::optional<absl::Duration> grace, std::function<void()> done) = 0;

  virtual const Address& http_address() const = 0;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_AGENT_H_
