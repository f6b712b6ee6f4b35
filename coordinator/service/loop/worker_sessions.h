// The workers' session streams by session id.
#ifndef MUSTER_COORDINATOR_SERVICE_LOOP_WORKER_SESSIONS_H_
#define MUSTER_COORDINATOR_SERVICE_LOOP_WORKER_SESSIONS_H_

#include <atomic>
#include <cstddef>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "common/limits.h"
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
  // Bytes that wait to be written; 0 once the session is being closed.
  virtual size_t unread_bytes() = 0;
  // Ends the stream with RESOURCE_EXHAUSTED, even though the worker does not read.
  virtual void CloseUnread() = 0;
};

// Thread-safe.
class WorkerSessions {
 public:
  // `max_unread_bytes`: what may wait to be written in all sessions together.
  explicit WorkerSessions(size_t max_unread_bytes = limits::kSessionQueueBytes)
      : max_unread_bytes_(max_unread_bytes) {}

  // Errors: RESOURCE_EXHAUSTED beyond limits::kSessions; UNAVAILABLE after CloseAll.
  absl::StatusOr<SessionId> Add(std::shared_ptr<WorkerSession> session);
  void Remove(SessionId id);
  bool Contains(SessionId id) { return Find(id) != nullptr; }

  // Returns false, and drops the message, when the session has ended. If too much waits to be
  // written, closes the session for which most does; its worker opens another one.
  bool Send(SessionId id, v1::CoordinatorMessage message);
  void Close(SessionId id, absl::Status status);
  // Ends every session and refuses new ones.
  void CloseAll(absl::Status status);
  // Reported by the sessions: their unread bytes have changed from `before` to `now`.
  void CountUnread(size_t before, size_t now) { unread_bytes_ += now - before; }

 private:
  void CloseLongest();
  std::shared_ptr<WorkerSession> Find(SessionId id);

  const size_t max_unread_bytes_;
  std::atomic<size_t> unread_bytes_ = 0;
  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<SessionId, std::shared_ptr<WorkerSession>> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_LOOP_WORKER_SESSIONS_H_
