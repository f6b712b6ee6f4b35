// One ClusterService.Exec stream: the client's end of an exec.
#ifndef MUSTER_COORDINATOR_SERVICE_EXEC_CALL_H_
#define MUSTER_COORDINATOR_SERVICE_EXEC_CALL_H_

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

namespace muster::service {

// Reads the start, finds the rank, and asks its worker to open the other end; then relays input and
// output. Owns itself until the gRPC call is done; the table shares ownership.
class ExecCall final : public grpc::ServerBidiReactor<v1::ExecInput, v1::ExecOutput>,
                       public TransferClient<v1::ExecOutput>,
                       public std::enable_shared_from_this<ExecCall> {
 public:
  // An `actor` with an error ends the call with it.
  static ExecCall* Start(absl::StatusOr<core::Actor> actor, CoreLoop& loop,
                         TransferTable<v1::ExecOutput>& transfers);

  // TransferClient.
  void OnOpen() override ABSL_LOCKS_EXCLUDED(mutex_) { ReadOn(); }
  void OnInputAccepted() override ABSL_LOCKS_EXCLUDED(mutex_) { ReadOn(); }
  void OnOutput(v1::ExecOutput output) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnEnd(absl::Status status) override ABSL_LOCKS_EXCLUDED(mutex_);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  ExecCall(core::Actor actor, CoreLoop& loop, TransferTable<v1::ExecOutput>& transfers)
      : actor_(std::move(actor)), loop_(loop), transfers_(transfers) {}
  absl::Status Begin() ABSL_LOCKS_EXCLUDED(mutex_);
  Release Locate(core::Core& core, const Time& now);
  void Transfer(const core::Core::RankLocation& location) ABSL_LOCKS_EXCLUDED(mutex_);
  // Passes the client's input on.
  void Forward(v1::ExecInput input) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReadOn() ABSL_LOCKS_EXCLUDED(mutex_);
  void End(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);

  const core::Actor actor_;
  CoreLoop& loop_;
  TransferTable<v1::ExecOutput>& transfers_;
  v1::ExecInput incoming_;      // of the read in progress
  v1::ExecInput::Start start_;  // set by the first read

  absl::Mutex mutex_;
  std::shared_ptr<ExecCall> self_ ABSL_GUARDED_BY(mutex_);
  StreamWriter<v1::ExecOutput, ExecCall> writer_ ABSL_GUARDED_BY(mutex_){*this};
  std::optional<TransferId> transfer_ ABSL_GUARDED_BY(mutex_);
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool input_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool exited_ ABSL_GUARDED_BY(mutex_) = false;  // the last output was the exit code
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_EXEC_CALL_H_
