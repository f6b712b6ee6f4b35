// Carries log bytes from the worker that has them to the client that reads them: one transfer at a
// time per reader, one chunk at a time per transfer. The next chunk is read from the worker once
// the client has taken the one before, so a slow reader holds back its own worker's stream and
// nothing else.
#ifndef MUSTER_COORDINATOR_SERVICE_LOG_RELAY_H_
#define MUSTER_COORDINATOR_SERVICE_LOG_RELAY_H_

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "coordinator/service/worker_sessions.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::service {

using TransferId = StrongId<struct TransferIdTag, uint64_t>;

// The client's end. Called by the relay without its lock.
class LogReader {
 public:
  virtual ~LogReader() = default;
  // Answered by LogRelay::Next when the client has taken it.
  virtual void OnChunk(v1::LogChunk chunk) = 0;
  // Last; not after Cancel. OK when the worker sent all there is.
  virtual void OnEnd(absl::Status status) = 0;
};

// The worker's end.
class LogSource {
 public:
  virtual ~LogSource() = default;
  // Reads one more chunk.
  virtual void Next() = 0;
  // Nobody reads any more.
  virtual void Stop(absl::Status status) = 0;
};

// Thread-safe. A transfer has one reader, and a source once the worker has opened its stream.
class LogRelay {
 public:
  explicit LogRelay(WorkerSessions& sessions) : sessions_(sessions) {}

  // Errors: RESOURCE_EXHAUSTED beyond limits::kLogTransfers; UNAVAILABLE after Shutdown.
  absl::StatusOr<TransferId> Open(SessionId session, std::shared_ptr<LogReader> reader);
  // Asks the worker for what `request` names. From here on the reader is called, perhaps before
  // this returns.
  void Start(TransferId id, const v1::ReadLogRequest& request);
  // The reader is ready for more.
  void Next(TransferId id);
  // The reader has gone.
  void Cancel(TransferId id);

  // The worker's stream for the transfer is here. CANCELLED when its reader has gone,
  // ALREADY_EXISTS when it has one.
  absl::Status Attach(TransferId id, std::shared_ptr<LogSource> source);
  void Chunk(TransferId id, v1::LogChunk chunk);
  // The worker's stream has ended, or `session` cannot serve the transfer.
  void End(TransferId id, absl::Status status);
  void Unavailable(SessionId session, TransferId id, absl::Status status);
  void SessionEnded(SessionId session);

  // Ends every transfer with UNAVAILABLE and refuses new ones.
  void Shutdown();

  size_t size() const;

 private:
  struct Transfer {
    SessionId session;
    std::shared_ptr<LogReader> reader;
    std::shared_ptr<LogSource> source;
  };
  // Ends those that `which` picks.
  void EndAll(const std::function<bool(const Transfer&)>& which, const absl::Status& status);

  WorkerSessions& sessions_;
  mutable absl::Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<TransferId, Transfer> transfers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_LOG_RELAY_H_
