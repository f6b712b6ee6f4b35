// One WorkerService.SendFiles stream: the worker's end of a copy of files.
#ifndef MUSTER_COORDINATOR_SERVICE_SEND_FILES_CALL_H_
#define MUSTER_COORDINATOR_SERVICE_SEND_FILES_CALL_H_

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/service/transfers.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

// Owns itself until the gRPC call is done; the table shares ownership.
class SendFilesCall final : public grpc::ServerReadReactor<v1::SendFilesRequest>,
                            public TransferWorker,
                            public std::enable_shared_from_this<SendFilesCall> {
 public:
  static SendFilesCall* Start(grpc::CallbackServerContext* context,
                              TransferTable<v1::ArchiveChunk>& transfers);

  // TransferWorker. A copy has no input.
  void Send(v1::ExecInput /*input*/) override {}
  void NextOutput() override ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop(absl::Status status) override ABSL_LOCKS_EXCLUDED(mutex_);

  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  SendFilesCall(grpc::CallbackServerContext* context, TransferTable<v1::ArchiveChunk>& transfers)
      : context_(context), transfers_(transfers) {}
  absl::Status Forward();

  grpc::CallbackServerContext* const context_;
  TransferTable<v1::ArchiveChunk>& transfers_;
  v1::SendFilesRequest incoming_;  // of the read in progress
  std::optional<TransferId> id_;   // set by the first read; only reads and OnDone access it

  absl::Mutex mutex_;
  std::shared_ptr<SendFilesCall> self_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_SEND_FILES_CALL_H_
