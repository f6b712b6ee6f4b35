// The worker daemon: puts its parts together and takes them down in order.
#ifndef MUSTER_WORKER_AGENT_AGENT_H_
#define MUSTER_WORKER_AGENT_AGENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/address.h"
#include "common/security/client_security.h"
#include "worker/agent/generation/devices.h"
#include "worker/agent/retention.h"

namespace muster::agent {

struct AgentOptions {
  std::string coordinator;  // HOST:PORT
  security::ClientSecurity security;
  std::string name;
  std::string advertise;  // where ranks here can be reached; empty: as the coordinator sees it
  std::string data_dir;
  std::string http = "127.0.0.1:0";
  DeviceOptions devices;
  std::map<std::string, std::string> labels;
  // Divides the CPUs that this worker may use among its slots, a GPU's being those near it, and
  // lets each rank run on those of its slots only. Right when they are this worker's alone, which
  // it cannot know.
  bool pin_cpus = false;
  Retention keep_logs;
  std::string shim_binary;
  std::string rank_binary;
};

// INVALID_ARGUMENT lists all that is wrong.
absl::Status CheckOptions(const AgentOptions& options);

// Thread-safe.
class Agent {
 public:
  // Ready when it returns: ranks of an earlier worker are found, the ranks' socket and HTTP are
  // served, and the session is being opened. `on_refused` is called, from a thread of the agent's,
  // when the coordinator will never take this worker. Errors: INVALID_ARGUMENT, FAILED_PRECONDITION
  // (another worker has the data directory), or what the system says.
  static absl::StatusOr<std::unique_ptr<Agent>> Start(
      const AgentOptions& options, std::function<void(const absl::Status&)> on_refused);

  // Leaves the ranks to their shims: the next worker finds them again.
  virtual ~Agent() = default;

  // Ends every rank and takes no new ones. `done` is called from a thread of the agent's when
  // nothing is left. With a grace, the ranks are stopped at once. Without one the coordinator is
  // told first, that it may move the jobs away; what it has not ended after a moment, or when it is
  // not there, is stopped with its job's grace. May be called again to shorten the grace; then only
  // the last `done` is called.
  virtual void StopRanks(std::optional<absl::Duration> grace, std::function<void()> done) = 0;

  virtual const Address& http_address() const = 0;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_AGENT_H_
