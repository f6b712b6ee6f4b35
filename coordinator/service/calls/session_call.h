// One WorkerService.Session stream.
#ifndef MUSTER_COORDINATOR_SERVICE_CALLS_SESSION_CALL_H_
#define MUSTER_COORDINATOR_SERVICE_CALLS_SESSION_CALL_H_

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "coordinator/service/loop/core_loop.h"
#include "coordinator/service/loop/worker_sessions.h"
#include "coordinator/service/relay/log_relay.h"
#include "coordinator/service/relay/transfers.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

// Owns itself until the gRPC call is done; the registry and callbacks in progress share
// ownership.
//
// Reads one message, passes it to the core, and reads the next one when the core has taken it.
// Writes one message at a time from a bounded queue. Reports the end of the session to the core
// once, as soon as either side ends it.
class SessionCall final : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>,
                          public WorkerSession,
                          public std::enable_shared_from_this<SessionCall> {
 public:
  static SessionCall* Start(grpc::CallbackServerContext* context, CoreLoop& loop,
                            WorkerSessions& sessions, LogRelay& logs, Transfers& transfers);

  void Send(v1::CoordinatorMessage message) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Close(absl::Status status) override ABSL_LOCKS_EXCLUDED(mutex_);
  size_t unread_bytes() override ABSL_LOCKS_EXCLUDED(mutex_);
  void CloseUnread() override ABSL_LOCKS_EXCLUDED(mutex_);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  SessionCall(grpc::CallbackServerContext* context, CoreLoop& loop, WorkerSessions& sessions,
              LogRelay& logs, Transfers& transfers);
  absl::Status Open() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Forward(SessionId id);
  void ReadOn() ABSL_LOCKS_EXCLUDED(mutex_);
  // Reports the end of the session to the core and its transfers, once.
  void Ended() ABSL_LOCKS_EXCLUDED(mutex_);
  void FinishWhenWritten(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseUnreadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetOutgoingBytes(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::CallbackServerContext* const context_;
  CoreLoop& loop_;
  WorkerSessions& sessions_;
  LogRelay& logs_;
  Transfers& transfers_;
  const std::string peer_;

  v1::WorkerMessage incoming_;  // target of the read in progress

  absl::Mutex mutex_;
  std::string node_name_ ABSL_GUARDED_BY(mutex_);        // the peer's address before its Hello
  std::optional<SessionId> id_ ABSL_GUARDED_BY(mutex_);  // set when the core knows the session
  std::shared_ptr<SessionCall> self_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::CoordinatorMessage> outgoing_
      ABSL_GUARDED_BY(mutex_);  // the first is being written
  size_t outgoing_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> closing_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_CALLS_SESSION_CALL_H_
