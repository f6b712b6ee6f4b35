// One ClusterService.ReadFiles stream: the client's end of a copy of files.
#ifndef MUSTER_COORDINATOR_SERVICE_READ_FILES_CALL_H_
#define MUSTER_COORDINATOR_SERVICE_READ_FILES_CALL_H_

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/core/actor.h"
#include "coordinator/service/core_loop.h"
#include "coordinator/service/stream_writer.h"
#include "coordinator/service/transfers.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

// Owns itself until the gRPC call is done; the table shares ownership.
class ReadFilesCall final : public grpc::ServerWriteReactor<v1::ArchiveChunk>,
                            public TransferClient<v1::ArchiveChunk>,
                            public std::enable_shared_from_this<ReadFilesCall> {
 public:
  // `request` must be valid. An `actor` with an error ends the call with it.
  static ReadFilesCall* Start(absl::StatusOr<core::Actor> actor,
                              const v1::ReadFilesRequest& request, CoreLoop& loop,
                              TransferTable<v1::ArchiveChunk>& transfers);

  // TransferClient. A copy has no input.
  void OnOpen() override {}
  void OnInputAccepted() override {}
  void OnOutput(v1::ArchiveChunk chunk) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnEnd(absl::Status status) override ABSL_LOCKS_EXCLUDED(mutex_);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  ReadFilesCall(core::Actor actor, const v1::ReadFilesRequest& request,
                TransferTable<v1::ArchiveChunk>& transfers)
      : actor_(std::move(actor)), transfers_(transfers) {
    *open_.mutable_request() = request;
  }
  Release Locate(core::Core& core, const Time& now);
  void Transfer(const core::Core::RankLocation& location) ABSL_LOCKS_EXCLUDED(mutex_);
  void End(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);

  const core::Actor actor_;
  TransferTable<v1::ArchiveChunk>& transfers_;
  v1::OpenFiles open_;  // completed by Locate

  absl::Mutex mutex_;
  std::shared_ptr<ReadFilesCall> self_ ABSL_GUARDED_BY(mutex_);
  StreamWriter<v1::ArchiveChunk, ReadFilesCall> writer_ ABSL_GUARDED_BY(mutex_){*this};
  std::optional<TransferId> transfer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_READ_FILES_CALL_H_
