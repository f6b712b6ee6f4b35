// A stream between this worker and a client of the coordinator: an exec or a copy of files.
#ifndef MUSTER_WORKER_AGENT_EXEC_TRANSFER_H_
#define MUSTER_WORKER_AGENT_EXEC_TRANSFER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "proto/muster/v1/worker.grpc.pb.h"
#include "worker/agent/event_loop.h"

namespace muster::agent {

// The part of the server that its transfers use.
struct TransferHost {
  EventLoop& loop;
  std::shared_ptr<v1::WorkerService::Stub> stub;
  // Reports to the coordinator that the transfer has failed; the coordinator then ends the stream.
  std::function<void(const absl::Status& status)> fail;
  // Destroys the transfer, later and on the loop; with an error, because its stream has failed.
  // Thread-safe.
  std::function<void(const absl::Status& status)> done;
};

// Used on the host's loop; gRPC's threads only post to it.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Opens the stream. Called once.
  virtual void Start() = 0;
  // Ends the stream and the processes behind it.
  virtual void Cancel() = 0;
  // A rank of this worker has exited.
  virtual void OnRankExited(const std::string& /*job_id*/, uint64_t /*generation*/,
                            uint32_t /*rank*/) {}
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_EXEC_TRANSFER_H_
