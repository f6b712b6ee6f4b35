// Relays execs and copies of files between clients and the workers that serve them.
//
// In each direction, one message is in flight per transfer: the next one is read from its sender
// after the receiver has accepted the previous one, so a slow receiver only delays its own stream.
#ifndef MUSTER_COORDINATOR_SERVICE_RELAY_TRANSFERS_H_
#define MUSTER_COORDINATOR_SERVICE_RELAY_TRANSFERS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "coordinator/service/loop/worker_sessions.h"
#include "coordinator/service/relay/transfer_id.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::service {

// The client's end. Called without any lock of the table.
template <typename Output>
class TransferClient {
 public:
  virtual ~TransferClient() = default;
  // The worker has opened its stream and accepts input.
  virtual void OnOpen() = 0;
  // The worker has accepted the last input.
  virtual void OnInputAccepted() = 0;
  // The client calls NextOutput when it has accepted this one.
  virtual void OnOutput(Output output) = 0;
  // The last call; not made after Cancel. OK when the worker has closed its stream.
  virtual void OnEnd(absl::Status status) = 0;
};

// The worker's end.
class TransferWorker {
 public:
  virtual ~TransferWorker() = default;
  virtual void Send(v1::ExecInput input) = 0;
  // Reads the next output.
  virtual void NextOutput() = 0;
  virtual void Stop(absl::Status status) = 0;
};

// Thread-safe. A transfer has one client, and a worker after the worker has opened its stream.
template <typename Output>
class TransferTable {
 public:
  explicit TransferTable(WorkerSessions& sessions) : sessions_(sessions) {}

  // ---- The client's end
  // Creates a transfer with a worker of node `node`. Errors: RESOURCE_EXHAUSTED beyond
  // limits::kTransfers; UNAVAILABLE after Shutdown.
  absl::StatusOr<TransferId> Open(SessionId session, std::string node,
                                  std::shared_ptr<TransferClient<Output>> client);
  // Sends the request to the worker. From here on the client is called, possibly before this
  // returns.
  void Start(TransferId id, v1::CoordinatorMessage request);
  void SendInput(TransferId id, v1::ExecInput input);
  void NextOutput(TransferId id);
  // Ends the transfer because its client has disconnected.
  void Cancel(TransferId id);

  // ---- The worker's end
  // Errors: CANCELLED when the client has disconnected, ALREADY_EXISTS when the transfer already
  // has a stream.
  absl::Status Attach(TransferId id, std::shared_ptr<TransferWorker> worker);
  void InputAccepted(TransferId id);
  void DeliverOutput(TransferId id, Output output);
  // The worker has closed its stream (OK), or sent something invalid.
  void End(TransferId id, absl::Status status);
  // The worker's stream broke.
  void Break(TransferId id);
  // The worker of `session` cannot serve the transfer.
  void Unavailable(SessionId session, TransferId id, absl::Status status);
  void SessionEnded(SessionId session);

  // Ends every transfer with UNAVAILABLE and refuses new ones.
  void Shutdown();

  size_t size() const;

 private:
  struct Transfer {
    SessionId session;
    std::string node;
    std::shared_ptr<TransferClient<Output>> client;
    std::shared_ptr<TransferWorker> worker;
  };
  // Copies the transfer; its client is null when it is unknown.
  Transfer Find(TransferId id) const;
  Transfer Take(TransferId id);
  // Ends the transfer with UNAVAILABLE, "node NAME <what>".
  void Lose(TransferId id, absl::string_view what);
  std::vector<TransferId> Ids(const std::function<bool(const Transfer&)>& which) const;

  WorkerSessions& sessions_;
  mutable absl::Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<TransferId, Transfer> transfers_ ABSL_GUARDED_BY(mutex_);
};

extern template class TransferTable<v1::ExecOutput>;
extern template class TransferTable<v1::ArchiveChunk>;

struct Transfers {
  explicit Transfers(WorkerSessions& sessions) : exec(sessions), files(sessions) {}

  void Unavailable(SessionId session, TransferId id, const absl::Status& status) {
    exec.Unavailable(session, id, status);
    files.Unavailable(session, id, status);
  }
  void SessionEnded(SessionId session) {
    exec.SessionEnded(session);
    files.SessionEnded(session);
  }
  void Shutdown() {
    exec.Shutdown();
    files.Shutdown();
  }

  TransferTable<v1::ExecOutput> exec;
  TransferTable<v1::ArchiveChunk> files;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_RELAY_TRANSFERS_H_
