// The streams between this worker and clients of the coordinator: logs, execs and copies of files.
#ifndef MUSTER_WORKER_AGENT_SESSION_TRANSFERS_H_
#define MUSTER_WORKER_AGENT_SESSION_TRANSFERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/grpc/status.h"
#include "common/security/client_security.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/worker.grpc.pb.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/session/coordinator_channel.h"

namespace muster::agent {

// The part of Transfers that a transfer uses.
struct TransferHost {
  EventLoop& loop;
  std::shared_ptr<v1::WorkerService::Stub> stub;
  uint64_t id = 0;
  // Reports to the coordinator that the transfer has failed; the coordinator then ends the stream.
  std::function<void(const absl::Status& status)> fail;
  // Destroys the transfer, later and on the loop; with an error, because its stream has failed.
  // Thread-safe.
  std::function<void(const absl::Status& status)> done;
};

// Used on the host's loop; gRPC's threads only post to it.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Opens the stream. Called once.
  virtual void Start() = 0;
  // Ends the stream and the processes behind it.
  virtual void Cancel() = 0;
  // A rank of this worker has exited.
  virtual void OnRankExited(const std::string& /*job_id*/, uint64_t /*generation*/,
                            uint32_t /*rank*/) {}
};

// A transfer that writes messages of type Request, one at a time, to a stream of gRPC.
template <typename Reactor, typename Request>
class StreamTransfer : public Transfer, public Reactor {
 public:
  explicit StreamTransfer(TransferHost host) : host_(std::move(host)) {}

  void Cancel() override {
    context_.TryCancel();
    broken_ = true;
    Advance();
  }
  void OnWriteDone(bool ok) override {
    host_.loop.Post([this, ok] {
      writing_ = false;
      broken_ = broken_ || !ok;
      Advance();
    });
  }
  void OnDone(const grpc::Status& status) override { host_.done(FromGrpcStatus(status)); }

 protected:
  // Sends the next message unless a write is in progress; otherwise waits for more, or finishes.
  virtual void Advance() = 0;

  // Call it once the stub's method has been called.
  void Open() {
    // Required because operations start outside of reactions.
    this->AddHold();
    this->StartCall();
    Advance();
  }
  // The next message, to be filled in before Write. The first one names the transfer.
  Request& NextMessage() {
    outgoing_.Clear();
    if (!std::exchange(named_, true)) outgoing_.set_transfer(host_.id);
    return outgoing_;
  }
  void Write() {
    writing_ = true;
    this->StartWrite(&outgoing_);
  }
  void Finish() {
    finished_ = true;
    if (broken_) {
      context_.TryCancel();
    } else {
      this->StartWritesDone();
    }
    this->RemoveHold();
  }
  // Ends a transfer whose stream has not been opened.
  void FailToStart(const absl::Status& status) {
    finished_ = true;
    host_.fail(status);
    host_.done(absl::OkStatus());
  }

  TransferHost host_;
  grpc::ClientContext context_;
  bool named_ = false;  // the first message has been sent
  bool writing_ = false;
  bool broken_ = false;
  bool finished_ = false;

 private:
  Request outgoing_;
};

// Has its own thread and connection, so that a slow client or disk does not delay anything else.
// Must be used on its loop.
class Transfers {
 public:
  struct Options {
    std::string name;         // of the thread
    std::string coordinator;  // HOST:PORT
    security::ClientSecurity security;
    size_t limit = 0;               // transfers at a time
    std::string too_many_error;     // of a transfer beyond the limit
    std::string stream_error = {};  // prefix of the error of a stream that fails
    // Reports to the coordinator that a transfer is not possible; called on the loop.
    std::function<void(uint64_t transfer, const absl::Status& status)> refuse;
  };

  explicit Transfers(Options options);
  // Cancels all transfers. Must be called outside the loop.
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  EventLoop& loop() { return loop_; }

  // Starts the transfer that `make` returns, or refuses it with its error. Without effect if the
  // transfer is open.
  void Start(uint64_t id,
             absl::FunctionRef<absl::StatusOr<std::unique_ptr<Transfer>>(TransferHost host)> make);
  void Close(uint64_t id);
  // Closes all transfers and the connection when the session is lost: their clients have been
  // disconnected, which a stream without data to send would not notice.
  void CloseAll();
  void OnRankExited(const std::string& job_id, uint64_t generation, uint32_t rank);

 private:
  void OnDone(uint64_t id, const std::shared_ptr<v1::WorkerService::Stub>& stub,
              const absl::Status& status);
  bool AllDone() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return open_ == 0; }

  const Options options_;
  CoordinatorStub stub_;
  std::map<uint64_t, std::unique_ptr<Transfer>> transfers_;
  bool stopping_ = false;
  absl::Mutex mutex_;
  int open_ ABSL_GUARDED_BY(mutex_) = 0;
  EventLoop loop_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_SESSION_TRANSFERS_H_
