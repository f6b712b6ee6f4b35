// One WorkerService.SendLog stream: the worker side of a log transfer.
#ifndef MUSTER_COORDINATOR_SERVICE_RELAY_SEND_LOG_CALL_H_
#define MUSTER_COORDINATOR_SERVICE_RELAY_SEND_LOG_CALL_H_

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/service/relay/log_relay.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

// Owns itself until the gRPC call is done; the relay shares ownership.
class SendLogCall final : public grpc::ServerReadReactor<v1::SendLogRequest>,
                          public LogSource,
                          public std::enable_shared_from_this<SendLogCall> {
 public:
  static SendLogCall* Start(grpc::CallbackServerContext* context, LogRelay& logs);

  void Next() override ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop(absl::Status status) override ABSL_LOCKS_EXCLUDED(mutex_);

  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  SendLogCall(grpc::CallbackServerContext* context, LogRelay& logs)
      : context_(context), logs_(logs) {}
  // Reports the end of the stream to the reader.
  void End(absl::Status status);
  absl::Status Forward();

  grpc::CallbackServerContext* const context_;
  LogRelay& logs_;
  v1::SendLogRequest incoming_;   // target of the read in progress
  std::optional<TransferId> id_;  // set by the first read; until then, only reads access it

  absl::Mutex mutex_;
  std::shared_ptr<SendLogCall> self_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_RELAY_SEND_LOG_CALL_H_
