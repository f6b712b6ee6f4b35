// One ClusterService.ReadFiles stream: the client's end of a copy of files.
#ifndef MUSTER_COORDINATOR_SERVICE_RELAY_READ_FILES_CALL_H_
#define MUSTER_COORDINATOR_SERVICE_RELAY_READ_FILES_CALL_H_

#include <utility>

#include "absl/status/statusor.h"
#include "coordinator/service/relay/transfer_call.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

class ReadFilesCall final
    : public TransferCall<grpc::ServerWriteReactor<v1::ArchiveChunk>, v1::ArchiveChunk> {
 public:
  // `request` must be valid. A `caller` with an error ends the call with it.
  static ReadFilesCall* Start(absl::StatusOr<AdmittedCaller> caller,
                              const v1::ReadFilesRequest& request, CoreLoop& loop,
                              TransferTable<v1::ArchiveChunk>& transfers);

  // TransferClient. A copy has no input.
  void OnOpen() override {}
  void OnInputAccepted() override {}

 private:
  ReadFilesCall(AdmittedCaller caller, const v1::ReadFilesRequest& request, CoreLoop& loop,
                TransferTable<v1::ArchiveChunk>& transfers)
      : TransferCall(std::move(caller), loop, transfers), request_(request) {}
  absl::StatusOr<Location> Locate(const core::Core& core, const Time& now) override;
  v1::CoordinatorMessage Request(TransferId id, const Location& location) override;

  v1::ReadFilesRequest request_;  // completed by Locate
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_RELAY_READ_FILES_CALL_H_
