// The workers' session streams, by the number under which the core knows them.
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

// One stream. Thread-safe; neither call waits.
class WorkerSession {
 public:
  virtual ~WorkerSession() = default;
  // Queues a message; a session whose queue is full is ended with RESOURCE_EXHAUSTED.
  virtual void Send(v1::CoordinatorMessage message) = 0;
  // Ends the stream with `status`; what is queued and not yet being written is dropped.
  virtual void Close(absl::Status status) = 0;
};

// Thread-safe.
class WorkerSessions {
 public:
  // RESOURCE_EXHAUSTED beyond limits::kSessions; UNAVAILABLE after CloseAll.
  absl::StatusOr<SessionId> Add(std::shared_ptr<WorkerSession> session);
  void Remove(SessionId id);

  // False, with the message dropped, when the session has ended.
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
