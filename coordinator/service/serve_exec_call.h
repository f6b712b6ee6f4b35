// One WorkerService.ServeExec stream: the worker's end of an exec.
#ifndef MUSTER_COORDINATOR_SERVICE_SERVE_EXEC_CALL_H_
#define MUSTER_COORDINATOR_SERVICE_SERVE_EXEC_CALL_H_

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/service/stream_writer.h"
#include "coordinator/service/transfers.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

// Owns itself until the gRPC call is done; the table shares ownership.
class ServeExecCall final : public grpc::ServerBidiReactor<v1::ServeExecRequest, v1::ExecInput>,
                            public TransferWorker,
                            public std::enable_shared_from_this<ServeExecCall> {
 public:
  static ServeExecCall* Start(grpc::CallbackServerContext* context,
                              TransferTable<v1::ExecOutput>& transfers);

  // TransferWorker.
  void Send(v1::ExecInput input) override ABSL_LOCKS_EXCLUDED(mutex_);
  void NextOutput() override ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop(absl::Status status) override ABSL_LOCKS_EXCLUDED(mutex_);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  ServeExecCall(grpc::CallbackServerContext* context, TransferTable<v1::ExecOutput>& transfers)
      : context_(context), transfers_(transfers) {}
  absl::Status Forward();

  grpc::CallbackServerContext* const context_;
  TransferTable<v1::ExecOutput>& transfers_;
  v1::ServeExecRequest incoming_;  // of the read in progress
  // Set by the first read, and used by callbacks that follow it.
  std::optional<TransferId> id_;

  absl::Mutex mutex_;
  std::shared_ptr<ServeExecCall> self_ ABSL_GUARDED_BY(mutex_);
  StreamWriter<v1::ExecInput, ServeExecCall> writer_ ABSL_GUARDED_BY(mutex_){*this};
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_SERVE_EXEC_CALL_H_
