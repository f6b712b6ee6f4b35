// Sends ranks' logs to the coordinator, one stream per reader.
#ifndef MUSTER_WORKER_AGENT_LOGS_LOG_SERVER_H_
#define MUSTER_WORKER_AGENT_LOGS_LOG_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/security/client_security.h"
#include "common/security/private_file.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/session/transfers.h"
#include "worker/agent/storage/data_directory.h"

namespace muster::agent {

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

  // The directory must outlive the server.
  LogServer(Options options, const DataDirectory& directory);
  LogServer(const LogServer&) = delete;
  LogServer& operator=(const LogServer&) = delete;

  // `live`: the rank has not exited, so its log may still grow.
  void Open(const v1::OpenLog& open, bool live);
  void Close(uint64_t transfer);
  // Closes all transfers when the session is lost. Readers reconnect through the next one.
  void CloseAll();
  // The logs of this rank are complete.
  void OnRankExited(const std::string& job_id, uint64_t generation, uint32_t rank);

 private:
  class LogTransfer;

  absl::StatusOr<std::unique_ptr<Transfer>> Make(const v1::OpenLog& open, bool live,
                                                 TransferHost host);
  // Calls Advance of the transfer when the log grows.
  absl::Status Watch(const std::string& path, LogTransfer* transfer);
  void Unwatch(LogTransfer* transfer);
  void OnFilesChanged();

  const Options options_;
  const DataDirectory& directory_;
  const security::OwnedFd inotify_;
  std::map<int, std::set<LogTransfer*>> watches_;  // by inotify watch descriptor; used on the loop
  Transfers transfers_;  // declared last: its loop uses the members above until it ends
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LOGS_LOG_SERVER_H_
