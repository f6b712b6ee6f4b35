#include "worker/agent/exec/transfer_server.h"

#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/limits.h"
#include "common/status.h"
#include "proto/muster/v1/worker.grpc.pb.h"
#include "worker/agent/coordinator_channel.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/exec/copy_transfer.h"
#include "worker/agent/exec/exec_transfer.h"
#include "worker/agent/exec/transfer.h"

namespace muster::agent {

// All state is used on its own loop.
class TransferServer::Impl {
 public:
  Impl(Options options, const DataDirectory& directory)
      : options_(std::move(options)),
        directory_(directory),
        stub_(options_.coordinator, options_.security),
        loop_("transfers") {}

  ~Impl() {
    loop_.RunAndWait([this] {
      stopping_ = true;
      CloseAll();
    });
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &Impl::AllDone));
  }

  EventLoop& loop() { return loop_; }

  void OpenExec(const v1::OpenExec& open, bool live) {
    absl::Status status = CheckJobId(open.job_id());
    if (status.ok() && !live) {
      status = absl::FailedPreconditionError(absl::StrCat("rank ", open.start().rank(), " of job ",
                                                          open.job_id(), " does not run on node ",
                                                          options_.node_name));
    }
    Start(open.transfer(), status, [&](TransferHost host) {
      return std::make_unique<ExecTransfer>(
          std::move(host), open, options_.shim_binary,
          directory_.Rank(open.job_id(), open.generation(), open.start().rank()));
    });
  }

  void OpenFiles(const v1::OpenFiles& open) {
    Start(open.transfer(), absl::OkStatus(), [&](TransferHost host) {
      return std::make_unique<CopyTransfer>(std::move(host), open, directory_, options_.node_name,
                                            options_.job_users, options_.shim_binary);
    });
  }

  void Close(uint64_t id) {
    const auto it = transfers_.find(id);
    if (it != transfers_.end()) it->second->Cancel();
  }

  void CloseAll() {
    for (auto& [id, transfer] : transfers_) transfer->Cancel();
    stub_.Reset();
  }

  void OnRankExited(const std::string& job_id, uint64_t generation, uint32_t rank) {
    for (auto& [id, transfer] : transfers_) transfer->OnRankExited(job_id, generation, rank);
  }

 private:
  // Starts the transfer that `make` creates, unless `status` is an error.
  template <typename Make>
  void Start(uint64_t id, absl::Status status, Make make) {
    if (transfers_.count(id) > 0) return;
    if (stopping_) status = absl::UnavailableError("the worker is shutting down");
    if (transfers_.size() >= limits::kTransfers) {
      status = absl::ResourceExhaustedError(absl::StrCat(
          "node ", options_.node_name, " has ", limits::kTransfers, " open transfers, the limit"));
    }
    if (!status.ok()) return options_.refuse(id, status);
    const std::shared_ptr<v1::WorkerService::Stub> stub = stub_.Get();
    TransferHost host{loop_, stub,
                      [this, id](const absl::Status& failure) { options_.refuse(id, failure); },
                      [this, id, stub](const absl::Status& ended) {
                        loop_.Post([this, id, stub, ended] { OnDone(id, stub, ended); });
                      }};
    {
      absl::MutexLock lock(&mutex_);
      ++open_;
    }
    (transfers_[id] = make(std::move(host)))->Start();
  }

  void OnDone(uint64_t id, const std::shared_ptr<v1::WorkerService::Stub>& stub,
              const absl::Status& status) {
    // The coordinator may not have received the stream at all, and cancels those without a client.
    if (!status.ok() && !absl::IsCancelled(status)) {
      stub_.Drop(stub);
      options_.refuse(
          id, absl::UnavailableError(absl::StrCat("node ", options_.node_name,
                                                  " cannot open a stream: ", status.message())));
    }
    transfers_.erase(id);
    absl::MutexLock lock(&mutex_);
    --open_;
  }

  bool AllDone() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return open_ == 0; }

  const Options options_;
  const DataDirectory& directory_;
  CoordinatorStub stub_;
  std::map<uint64_t, std::unique_ptr<Transfer>> transfers_;
  bool stopping_ = false;
  absl::Mutex mutex_;
  int open_ ABSL_GUARDED_BY(mutex_) = 0;
  EventLoop loop_;
};

TransferServer::TransferServer(Options options, const DataDirectory& directory)
    : impl_(std::make_unique<Impl>(std::move(options), directory)) {}

TransferServer::~TransferServer() = default;

void TransferServer::OpenExec(const v1::OpenExec& open, bool live) {
  impl_->loop().Post([impl = impl_.get(), open, live] { impl->OpenExec(open, live); });
}

void TransferServer::OpenFiles(const v1::OpenFiles& open) {
  impl_->loop().Post([impl = impl_.get(), open] { impl->OpenFiles(open); });
}

void TransferServer::Close(uint64_t transfer) {
  impl_->loop().Post([impl = impl_.get(), transfer] { impl->Close(transfer); });
}

void TransferServer::CloseAll() {
  impl_->loop().Post([impl = impl_.get()] { impl->CloseAll(); });
}

void TransferServer::OnRankExited(const std::string& job_id, uint64_t generation, uint32_t rank) {
  impl_->loop().Post([impl = impl_.get(), job_id, generation, rank] {
    impl->OnRankExited(job_id, generation, rank);
  });
}

}  // namespace muster::agent
