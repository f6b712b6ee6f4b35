// Sends ranks' logs to the coordinator, one stream per reader.
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

// Uses its own thread and connection, so that a slow reader or disk does not delay anything else.
// Thread-safe.
class LogServer {
 public:
  struct Options {
    std::string coordinator;  // HOST:PORT
    security::ClientSecurity security;
    std::string kept;             // the retention of logs, for errors about deleted logs
    uint64_t rank_log_bytes = 0;  // limit of a log, for notices about dropped output
    // Reports to the coordinator that a transfer is not possible; called on the server's thread.
    std::function<void(uint64_t transfer, const absl::Status& status)> refuse;
  };

  LogServer(Options options, const DataDirectory& directory);
  // Cancels all transfers.
  ~LogServer();
  LogServer(const LogServer&) = delete;
  LogServer& operator=(const LogServer&) = delete;

  // `live`: the rank has not exited, so its log may still grow.
  void Open(const v1::OpenLog& open, bool live);
  void Close(uint64_t transfer);
  // Closes all transfers and the connection when the session is lost: a stream without data to send
  // would not notice that its reader has disconnected.
  void CloseAll();
  // The logs of this rank are complete.
  void OnRankExited(const std::string& job_id, uint64_t generation, uint32_t rank);

 private:
  class Transfer;
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LOGS_LOG_SERVER_H_
