// The part that the clients' streams of execs and of copies have in common.
#ifndef MUSTER_COORDINATOR_SERVICE_RELAY_TRANSFER_CALL_H_
#define MUSTER_COORDINATOR_SERVICE_RELAY_TRANSFER_CALL_H_

#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/status.h"
#include "coordinator/core/actor.h"
#include "coordinator/service/auth/caller_limit.h"
#include "coordinator/service/loop/core_loop.h"
#include "coordinator/service/loop/stream_writer.h"
#include "coordinator/service/relay/transfers.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

// Finds the rank, asks its worker to open the other end of the stream, and relays the worker's
// output. Owns itself until the gRPC call is done; the table shares ownership.
template <typename Reactor, typename Output>
class TransferCall : public Reactor,
                     public TransferClient<Output>,
                     public std::enable_shared_from_this<TransferCall<Reactor, Output>> {
 public:
  // TransferClient.
  void OnOutput(Output output) override ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    writer_.Write(std::move(output));
  }
  void OnEnd(absl::Status status) override ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    transfer_.reset();
    writer_.End(std::move(status));
  }

  void OnWriteDone(bool ok) override {
    std::optional<TransferId> transfer;
    {
      absl::MutexLock lock(&mutex_);
      if (!writer_.OnWriteDone(ok)) return;
      transfer = transfer_;
    }
    if (transfer.has_value()) transfers_.NextOutput(*transfer);
  }
  void OnCancel() override { End(absl::CancelledError("the client has disconnected")); }
  void OnDone() override {
    std::shared_ptr<TransferCall> self;
    absl::MutexLock lock(&mutex_);
    self.swap(self_);
  }

 protected:
  using Location = core::Core::RankLocation;

  TransferCall(AdmittedCaller caller, CoreLoop& loop, TransferTable<Output>& transfers)
      : transfers_(transfers), caller_(std::move(caller)), loop_(loop) {}

  // The location of the rank, if the caller may use it. Called on the core thread.
  virtual absl::StatusOr<Location> Locate(const core::Core& core, const Time& now) = 0;
  // The request to the worker.
  virtual v1::CoordinatorMessage Request(TransferId id, const Location& location) = 0;

  // Called once, after construction.
  void Own() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    self_ = this->shared_from_this();
  }
  // Locates the rank, then opens the transfer.
  absl::Status Begin() {
    const bool queued =
        loop_.PushQuery([self = this->shared_from_this()](core::Core& core, const Time& now) {
          return Release([self, location = self->Locate(core, now)] {
            location.ok() ? self->Open(*location) : self->End(location.status());
          });
        });
    return queued ? absl::OkStatus() : absl::UnavailableError("the coordinator is shutting down");
  }
  // Checks that the caller may use the job, which it named by an id or a prefix.
  absl::StatusOr<v1::Job> FindJob(const core::Core& core, const std::string& name,
                                  const Time& now) const {
    ASSIGN_OR_RETURN(const JobId id, core.ResolveJob(name));
    ASSIGN_OR_RETURN(v1::Job job, core.GetJob(id, /*detailed=*/false, now));
    RETURN_IF_ERROR(core::CheckOwner(job, caller_.actor));
    return job;
  }
  void End(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::optional<TransferId> transfer;
    {
      absl::MutexLock lock(&mutex_);
      if (!writer_.End(std::move(status))) return;
      transfer = std::exchange(transfer_, std::nullopt);
    }
    if (transfer.has_value()) transfers_.Cancel(*transfer);
  }

  TransferTable<Output>& transfers_;
  absl::Mutex mutex_;
  StreamWriter<Output, Reactor> writer_ ABSL_GUARDED_BY(mutex_){*this};
  std::optional<TransferId> transfer_ ABSL_GUARDED_BY(mutex_);

 private:
  void Open(const Location& location) ABSL_LOCKS_EXCLUDED(mutex_) {
    TransferId id;
    {
      absl::MutexLock lock(&mutex_);
      if (writer_.ending()) return;
      const absl::StatusOr<TransferId> opened =
          transfers_.Open(location.session, location.node.value(), this->shared_from_this());
      if (!opened.ok()) {
        writer_.End(opened.status());
        return;
      }
      id = *opened;
      transfer_ = id;
    }
    transfers_.Start(id, Request(id, location));
  }

  const AdmittedCaller caller_;
  CoreLoop& loop_;
  std::shared_ptr<TransferCall> self_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_RELAY_TRANSFER_CALL_H_
