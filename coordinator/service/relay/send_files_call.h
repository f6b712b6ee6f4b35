// One WorkerService.SendFiles stream: the worker's end of a copy of files.
#ifndef MUSTER_COORDINATOR_SERVICE_RELAY_SEND_FILES_CALL_H_
#define MUSTER_COORDINATOR_SERVICE_RELAY_SEND_FILES_CALL_H_

#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/service/relay/transfer_worker_call.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

class SendFilesCall final : public TransferWorkerCall<grpc::ServerReadReactor<v1::SendFilesRequest>,
                                                      v1::SendFilesRequest, v1::ArchiveChunk> {
 public:
  SendFilesCall(grpc::CallbackServerContext* context, TransferTable<v1::ArchiveChunk>& transfers)
      : TransferWorkerCall(context, transfers) {}

  // A copy has no input.
  void Send(v1::ExecInput /*input*/) override {}

 private:
  absl::StatusOr<std::optional<v1::ArchiveChunk>> TakeOutput(
      v1::SendFilesRequest& request) override;
  bool ending() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return finished_; }
  void End(absl::Status status) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_RELAY_SEND_FILES_CALL_H_
