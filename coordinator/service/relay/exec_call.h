// One ClusterService.Exec stream: the client's end of an exec.
#ifndef MUSTER_COORDINATOR_SERVICE_RELAY_EXEC_CALL_H_
#define MUSTER_COORDINATOR_SERVICE_RELAY_EXEC_CALL_H_

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/service/relay/transfer_call.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::service {

// Reads the start, then relays the client's input.
class ExecCall final
    : public TransferCall<grpc::ServerBidiReactor<v1::ExecInput, v1::ExecOutput>, v1::ExecOutput> {
 public:
  // A `caller` with an error ends the call with it.
  static ExecCall* Start(absl::StatusOr<AdmittedCaller> caller, CoreLoop& loop,
                         TransferTable<v1::ExecOutput>& transfers);

  // TransferClient.
  void OnOpen() override ABSL_LOCKS_EXCLUDED(mutex_) { ReadOn(); }
  void OnInputAccepted() override ABSL_LOCKS_EXCLUDED(mutex_) { ReadOn(); }
  void OnOutput(v1::ExecOutput output) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnEnd(absl::Status status) override ABSL_LOCKS_EXCLUDED(mutex_);

  void OnReadDone(bool ok) override;

 private:
  using TransferCall::TransferCall;
  absl::StatusOr<Location> Locate(const core::Core& core, const Time& now) override;
  v1::CoordinatorMessage Request(TransferId id, const Location& location) override;
  absl::Status ReadStart();
  // Passes the client's input on.
  void Forward(v1::ExecInput input) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReadOn() ABSL_LOCKS_EXCLUDED(mutex_);

  v1::ExecInput incoming_;      // target of the read in progress
  v1::ExecInput::Start start_;  // set by the first read

  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool input_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool exited_ ABSL_GUARDED_BY(mutex_) = false;  // the last output was the exit code
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_RELAY_EXEC_CALL_H_
