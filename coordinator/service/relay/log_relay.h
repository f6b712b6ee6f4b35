// Relays log bytes from a worker to the client that reads them: one transfer at a time per reader,
// one chunk at a time per transfer. The next chunk is read from the worker after the client has
// accepted the previous one, so a slow reader only delays its own stream.
#ifndef MUSTER_COORDINATOR_SERVICE_RELAY_LOG_RELAY_H_
#define MUSTER_COORDINATOR_SERVICE_RELAY_LOG_RELAY_H_

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "coordinator/service/loop/worker_sessions.h"
#include "coordinator/service/relay/transfer_id.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::service {

// The client side. The relay calls it without holding its lock.
class LogReader {
 public:
  virtual ~LogReader() = default;
  // Delivers a chunk. The reader calls LogRelay::Next when it is ready for the next one.
  virtual void OnChunk(v1::LogChunk chunk) = 0;
  // The last call; not made after Cancel. OK when the worker has sent the complete log.
  virtual void OnEnd(absl::Status status) = 0;
};

// The worker side.
class LogSource {
 public:
  virtual ~LogSource() = default;
  // Reads the next chunk.
  virtual void Next() = 0;
  // Ends the stream, because the reader has stopped.
  virtual void Stop(absl::Status status) = 0;
};

// Thread-safe. A transfer has one reader, and a source after the worker has opened its stream.
class LogRelay {
 public:
  explicit LogRelay(WorkerSessions& sessions) : sessions_(sessions) {}

  // Creates a transfer. Errors: RESOURCE_EXHAUSTED beyond limits::kLogTransfers; UNAVAILABLE after
  // Shutdown.
  absl::StatusOr<TransferId> Open(SessionId session, std::shared_ptr<LogReader> reader);
  // Requests the log from the worker. From here on the reader is called, possibly before this
  // returns.
  void Start(TransferId id, const v1::ReadLogRequest& request);
  // Requests the next chunk for the reader.
  void Next(TransferId id);
  // Ends the transfer because its reader has stopped.
  void Cancel(TransferId id);

  // Attaches the worker's stream to the transfer. Errors: CANCELLED when the reader has stopped,
  // ALREADY_EXISTS when the transfer already has a stream.
  absl::Status Attach(TransferId id, std::shared_ptr<LogSource> source);
  void Chunk(TransferId id, v1::LogChunk chunk);
  // End: the worker's stream has ended. Unavailable: `session` cannot serve the transfer.
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
  // Ends the transfers for which `which` returns true.
  void EndAll(const std::function<bool(const Transfer&)>& which, const absl::Status& status);

  WorkerSessions& sessions_;
  mutable absl::Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<TransferId, Transfer> transfers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_RELAY_LOG_RELAY_H_
