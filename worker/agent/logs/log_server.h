// Sends ranks' logs to the coordinator, each on a stream of its own, for as long as somebody reads.
#ifndef MUSTER_WORKER_AGENT_LOGS_LOG_SERVER_H_
#define MUSTER_WORKER_AGENT_LOGS_LOG_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "common/security/client_security.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/data_directory.h"
#include "worker/agent/event_loop.h"

namespace muster::agent {

// Reads and waits on a thread of its own, over a connection of its own: a log that is read slowly,
// or from a slow disk, delays nothing else. Thread-safe.
class LogServer {
 public:
  // `refuse` tells the coordinator that a transfer will not come; called on the server's thread.
  using Refuse = std::function<void(uint64_t transfer, const absl::Status& status)>;

  // `kept`: how long logs are, for a reader who comes too late.
  LogServer(std::string coordinator, const DataDirectory& directory, std::string kept,
            Refuse refuse, security::ClientSecurity security = {});
  // Cancels all transfers.
  ~LogServer();
  LogServer(const LogServer&) = delete;
  LogServer& operator=(const LogServer&) = delete;

  // `live`: the rank has not exited, so that a reader who follows gets more.
  void Open(const v1::OpenLog& open, bool live);
  void Close(uint64_t transfer);
  // The session is lost: a stream that waits for more to send would not notice that its reader has
  // gone.
  void CloseAll();
  // Nothing will be added to the logs of this rank.
  void OnRankExited(const std::string& job_id, uint64_t generation, uint32_t rank);

 private:
  class Transfer;
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LOGS_LOG_SERVER_H_
