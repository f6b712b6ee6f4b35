// The worker's end of a transfer: a stream of which the first message names the transfer.
#ifndef MUSTER_COORDINATOR_SERVICE_RELAY_TRANSFER_WORKER_CALL_H_
#define MUSTER_COORDINATOR_SERVICE_RELAY_TRANSFER_WORKER_CALL_H_

#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/status.h"
#include "coordinator/service/relay/transfers.h"
#include "grpcpp/grpcpp.h"

namespace muster::service {

// The reading side of a stream of `Request`s, each of which may contain an `Output` for the client.
// `Reactor` is gRPC's base class of such streams. Owns itself until the gRPC call is done; the
// table shares ownership.
template <typename Reactor, typename Request, typename Output>
class TransferWorkerCall
    : public Reactor,
      public TransferWorker,
      public std::enable_shared_from_this<TransferWorkerCall<Reactor, Request, Output>> {
 public:
  // Starts a call that was created by new.
  template <typename Call>
  static Call* Start(Call* created) {
    std::shared_ptr<Call> call(created);
    absl::MutexLock lock(&call->mutex_);
    call->self_ = call;
    call->StartRead(&call->incoming_);
    return created;
  }

  // TransferWorker.
  void NextOutput() final ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (!ending()) this->StartRead(&incoming_);
  }
  void Stop(absl::Status status) final ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    End(std::move(status));
  }

  void OnReadDone(bool ok) final {
    if (ok) {
      const absl::Status status = Forward();
      if (status.ok()) return;
      if (id_.has_value()) {
        transfers_.End(*id_, absl::InternalError(absl::StrCat("the node sent an invalid stream: ",
                                                              status.message())));
      }
      return Stop(status);
    }
    if (!id_.has_value()) {
      return Stop(absl::InvalidArgumentError("the stream does not name a transfer"));
    }
    // A half-close means that the output is complete; a broken stream does not.
    if (context_->IsCancelled()) {
      transfers_.Break(*id_);
    } else {
      transfers_.End(*id_, absl::OkStatus());
    }
  }
  void OnCancel() final { Stop(absl::CancelledError("the stream was cancelled")); }
  void OnDone() final {
    // No effect on a transfer that has ended.
    if (id_.has_value()) transfers_.Break(*id_);
    std::shared_ptr<TransferWorkerCall> self;
    absl::MutexLock lock(&mutex_);
    self.swap(self_);
  }

 protected:
  TransferWorkerCall(grpc::CallbackServerContext* context, TransferTable<Output>& transfers)
      : context_(context), transfers_(transfers) {}

  // Returns the output in a request; nothing if it has none. INVALID_ARGUMENT.
  virtual absl::StatusOr<std::optional<Output>> TakeOutput(Request& request) = 0;
  // Whether End was called.
  virtual bool ending() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Finishes the stream as soon as gRPC permits; no effect on a stream that is ending.
  virtual void End(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;

  // The worker has accepted the last input.
  void ReportInputAccepted() { transfers_.InputAccepted(*id_); }

  absl::Mutex mutex_;

 private:
  absl::Status Forward() {
    Request request = std::move(incoming_);
    incoming_.Clear();
    if (!id_.has_value()) {
      // Set before Attach, because the client may send input as soon as the stream is attached.
      id_ = TransferId(request.transfer());
      const absl::Status attached = transfers_.Attach(*id_, this->shared_from_this());
      if (!attached.ok()) {
        id_.reset();
        return attached;
      }
    }
    ASSIGN_OR_RETURN(std::optional<Output> output, TakeOutput(request));
    if (output.has_value()) {
      transfers_.DeliverOutput(*id_, *std::move(output));
    } else {
      NextOutput();
    }
    return absl::OkStatus();
  }

  grpc::CallbackServerContext* const context_;
  TransferTable<Output>& transfers_;
  Request incoming_;  // target of the read in progress
  // Set by the first read, and used by callbacks that follow it.
  std::optional<TransferId> id_;
  std::shared_ptr<TransferWorkerCall> self_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_RELAY_TRANSFER_WORKER_CALL_H_
