// Serves execs and copies of files, one stream per client.
#ifndef MUSTER_WORKER_AGENT_EXEC_TRANSFER_SERVER_H_
#define MUSTER_WORKER_AGENT_EXEC_TRANSFER_SERVER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/security/client_security.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/job_user.h"
#include "worker/agent/session/transfers.h"
#include "worker/agent/storage/data_directory.h"

namespace muster::agent {

// Thread-safe.
class TransferServer {
 public:
  struct Options {
    std::string coordinator;  // HOST:PORT
    security::ClientSecurity security;
    std::string node_name;
    std::string shim_binary;
    JobUsers job_users;  // Unix users that read the files
    // Reports to the coordinator that a transfer is not possible; called on the server's thread.
    std::function<void(uint64_t transfer, const absl::Status& status)> refuse;
  };

  // The directory must outlive the server.
  TransferServer(Options options, const DataDirectory& directory);
  TransferServer(const TransferServer&) = delete;
  TransferServer& operator=(const TransferServer&) = delete;

  // `live`: the rank is on this node and has not exited.
  void OpenExec(const v1::OpenExec& open, bool live);
  void OpenFiles(const v1::OpenFiles& open);
  void Close(uint64_t transfer);
  // Closes all transfers when the session is lost: their clients have been disconnected.
  void CloseAll();
  // Kills the commands that run beside this rank.
  void OnRankExited(const std::string& job_id, uint64_t generation, uint32_t rank);

 private:
  const Options options_;
  const DataDirectory& directory_;
  Transfers transfers_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_EXEC_TRANSFER_SERVER_H_
