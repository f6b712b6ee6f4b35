// One WorkerService.ServeExec stream: the worker's end of an exec.
#ifndef MUSTER_COORDINATOR_SERVICE_RELAY_SERVE_EXEC_CALL_H_
#define MUSTER_COORDINATOR_SERVICE_RELAY_SERVE_EXEC_CALL_H_

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/service/loop/stream_writer.h"
#include "coordinator/service/relay/transfer_worker_call.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

class ServeExecCall final
    : public TransferWorkerCall<grpc::ServerBidiReactor<v1::ServeExecRequest, v1::ExecInput>,
                                v1::ServeExecRequest, v1::ExecOutput> {
 public:
  ServeExecCall(grpc::CallbackServerContext* context, TransferTable<v1::ExecOutput>& transfers)
      : TransferWorkerCall(context, transfers) {}

  void Send(v1::ExecInput input) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWriteDone(bool ok) override;

 private:
  absl::StatusOr<std::optional<v1::ExecOutput>> TakeOutput(v1::ServeExecRequest& request) override;
  bool ending() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return writer_.ending(); }
  void End(absl::Status status) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    writer_.End(std::move(status));
  }

  StreamWriter<v1::ExecInput, ServeExecCall> writer_ ABSL_GUARDED_BY(mutex_){*this};
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_RELAY_SERVE_EXEC_CALL_H_
