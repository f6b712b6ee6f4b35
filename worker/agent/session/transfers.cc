#include "worker/agent/session/transfers.h"

#include "absl/strings/str_cat.h"

namespace muster::agent {

Transfers::Transfers(Options options)
    : options_(std::move(options)),
      stub_(options_.coordinator, options_.security),
      loop_(options_.name) {}

Transfers::~Transfers() {
  loop_.RunAndWait([this] {
    stopping_ = true;
    CloseAll();
  });
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &Transfers::AllDone));
}

void Transfers::Start(
    uint64_t id,
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<Transfer>>(TransferHost host)> make) {
  if (transfers_.count(id) > 0) return;
  if (stopping_) return options_.refuse(id, absl::UnavailableError("the worker is shutting down"));
  if (transfers_.size() >= options_.limit) {
    return options_.refuse(id, absl::ResourceExhaustedError(options_.too_many_error));
  }
  const std::shared_ptr<v1::WorkerService::Stub> stub = stub_.Get();
  auto transfer = make({loop_, stub, id,
                        [this, id](const absl::Status& failure) { options_.refuse(id, failure); },
                        [this, id, stub](const absl::Status& ended) {
                          loop_.Post([this, id, stub, ended] { OnDone(id, stub, ended); });
                        }});
  if (!transfer.ok()) return options_.refuse(id, transfer.status());
  {
    absl::MutexLock lock(&mutex_);
    ++open_;
  }
  (transfers_[id] = *std::move(transfer))->Start();
}

void Transfers::Close(uint64_t id) {
  const auto it = transfers_.find(id);
  if (it != transfers_.end()) it->second->Cancel();
}

void Transfers::CloseAll() {
  for (auto& [id, transfer] : transfers_) transfer->Cancel();
  stub_.Reset();
}

void Transfers::OnRankExited(const std::string& job_id, uint64_t generation, uint32_t rank) {
  for (auto& [id, transfer] : transfers_) transfer->OnRankExited(job_id, generation, rank);
}

void Transfers::OnDone(uint64_t id, const std::shared_ptr<v1::WorkerService::Stub>& stub,
                       const absl::Status& status) {
  // The coordinator may not have received the stream at all, and cancels those without a client.
  if (!status.ok() && !absl::IsCancelled(status)) {
    stub_.Drop(stub);
    options_.refuse(
        id, absl::UnavailableError(absl::StrCat(options_.stream_error, ": ", status.message())));
  }
  transfers_.erase(id);
  absl::MutexLock lock(&mutex_);
  --open_;
}

}  // namespace muster::agent
