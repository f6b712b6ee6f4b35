// The workers' session streams by session id.
#ifndef MUSTER_COORDINATOR_SERVICE_WORKER_SESSIONS_H_
#define MUSTER_COORDINATOR_SERVICE_WORKER_SESSIONS_H_

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

// One session stream. Thread-safe; neither call blocks.
class WorkerSession {
 public:
  virtual ~WorkerSession() = default;
  // Queues a message; if the queue is full, ends the session with RESOURCE_EXHAUSTED.
  virtual void Send(v1::CoordinatorMessage message) = 0;
  // Ends the stream with `status`; drops queued messages, except one already being written.
  virtual void Close(absl::Status status) = 0;
};

// Thread-safe.
class WorkerSessions {
 public:
  // Errors: RESOURCE_EXHAUSTED beyond limits::kSessions; UNAVAILABLE after CloseAll.
  absl::StatusOr<SessionId> Add(std::shared_ptr<WorkerSession> session);
  void Remove(SessionId id);

  // Returns false, and drops the message, when the session has ended.
  bool Send(SessionId id, v1::CoordinatorMessage message);
  void Close(SessionId id, absl::Status status);
  // Ends every session and refuses new ones.
  void CloseAll(absl::Status status);

 private:
  std::shared_ptr<WorkerSession> Find(SessionId id);

  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<SessionId, std::shared_ptr<WorkerSession>> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_WORKER_SESSIONS_H_
