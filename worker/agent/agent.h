// The worker daemon and its settings: creates its components and shuts them down in order.
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
#include "worker/agent/generation/environment.h"
#include "worker/agent/storage/retention.h"

namespace muster::agent {

// The settings of a worker.
struct AgentOptions {
  std::string coordinator;  // HOST:PORT
  security::ClientSecurity security;
  std::string name;
  std::string advertise;  // address at which ranks here can be reached; empty: as the coordinator
                          // observes it
  std::string data_dir;
  std::string machine_id;  // empty: see common/process/machine_id.h
  std::string http = "127.0.0.1:0";
  std::string peer_listen;      // see lease/leases.h
  bool trusts_refusals = true;  // see Leases::Options
  DeviceOptions devices;
  std::map<std::string, std::string> labels;
  Inherit inherit_env = Inherit::kDefault;        // variables that ranks inherit from this worker
  uint64_t file_cache_bytes = uint64_t{4} << 30;  // cache of jobs' files for later jobs
  // Divides the CPUs that this worker may use among its slots (a GPU slot gets CPUs near the GPU),
  // and binds each rank to the CPUs of its slots. Only correct if no other worker uses these CPUs,
  // which a worker cannot detect.
  bool pin_cpus = false;
  Retention keep_logs;
  // Limit of each log (stdout, stderr) of each rank, with its index: 0 (none) or at least
  // shim::LogFile::kMinLimitBytes.
  uint64_t rank_log_bytes = uint64_t{1} << 30;
  // Parent of the directory in which ranks leave their state, see memory_directory.h; empty: none.
  std::string memory_dir = "/dev/shm";
  std::string
      secrets_dir;  // folder with files of jobs' secrets, see generation/secrets.h; empty: none
  std::string job_user;  // user that runs the ranks, see job_user.h; empty: the worker's own
  uint32_t job_user_min_uid = 1000;
  std::string shim_binary;
  std::string rank_binary;
  std::string store_binary;
  std::string mpi_binary;
  // Called by the event loop about twice a second; may be null.
  std::function<void()> on_tick;
};

// INVALID_ARGUMENT lists all errors.
absl::Status CheckOptions(const AgentOptions& options);

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
