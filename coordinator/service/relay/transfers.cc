#include "coordinator/service/relay/transfers.h"

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/random_id.h"

namespace muster::service {

template <typename Output>
absl::StatusOr<TransferId> TransferTable<Output>::Open(
    SessionId session, std::string node, std::shared_ptr<TransferClient<Output>> client) {
  absl::MutexLock lock(&mutex_);
  if (shut_down_) return absl::UnavailableError("the coordinator is shutting down");
  if (transfers_.size() >= limits::kTransfers) {
    return absl::ResourceExhaustedError(absl::StrCat(limits::kTransfers,
                                                     " transfers are in progress, the limit of the "
                                                     "coordinator; try again later"));
  }
  TransferId id;
  do {
    id = TransferId(RandomId());
  } while (transfers_.contains(id));
  transfers_[id] = {session, std::move(node), std::move(client), nullptr};
  return id;
}

template <typename Output>
void TransferTable<Output>::Start(TransferId id, v1::CoordinatorMessage request) {
  const Transfer transfer = Find(id);
  if (transfer.client == nullptr) return;
  if (!sessions_.Send(transfer.session, std::move(request))) {
    Lose(id, "is not connected");
  }
}

template <typename Output>
void TransferTable<Output>::SendInput(TransferId id, v1::ExecInput input) {
  const Transfer transfer = Find(id);
  if (transfer.worker != nullptr) transfer.worker->Send(std::move(input));
}

template <typename Output>
void TransferTable<Output>::NextOutput(TransferId id) {
  const Transfer transfer = Find(id);
  if (transfer.worker != nullptr) transfer.worker->NextOutput();
}

template <typename Output>
void TransferTable<Output>::Cancel(TransferId id) {
  const Transfer transfer = Take(id);
  if (transfer.client == nullptr) return;
  v1::CoordinatorMessage message;
  message.mutable_close_transfer()->set_transfer(id.value());
  sessions_.Send(transfer.session, std::move(message));
  if (transfer.worker != nullptr) {
    transfer.worker->Stop(absl::CancelledError("the client has disconnected"));
  }
}

template <typename Output>
absl::Status TransferTable<Output>::Attach(TransferId id, std::shared_ptr<TransferWorker> worker) {
  std::shared_ptr<TransferClient<Output>> client;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = transfers_.find(id);
    if (it == transfers_.end()) return absl::CancelledError("the client has disconnected");
    if (it->second.worker != nullptr) {
      return absl::AlreadyExistsError("the transfer already has a stream");
    }
    it->second.worker = std::move(worker);
    client = it->second.client;
  }
  client->OnOpen();
  return absl::OkStatus();
}

template <typename Output>
void TransferTable<Output>::InputAccepted(TransferId id) {
  const Transfer transfer = Find(id);
  if (transfer.client != nullptr) transfer.client->OnInputAccepted();
}

template <typename Output>
void TransferTable<Output>::DeliverOutput(TransferId id, Output output) {
  const Transfer transfer = Find(id);
  if (transfer.client != nullptr) transfer.client->OnOutput(std::move(output));
}

template <typename Output>
void TransferTable<Output>::End(TransferId id, absl::Status status) {
  const Transfer transfer = Take(id);
  if (transfer.client == nullptr) return;
  transfer.client->OnEnd(status);
  if (transfer.worker != nullptr) transfer.worker->Stop(status);
}

template <typename Output>
void TransferTable<Output>::Lose(TransferId id, absl::string_view what) {
  End(id, absl::UnavailableError(absl::StrCat("node ", Find(id).node, " ", what)));
}

template <typename Output>
void TransferTable<Output>::Break(TransferId id) {
  Lose(id, "closed the stream before its end");
}

template <typename Output>
void TransferTable<Output>::Unavailable(SessionId session, TransferId id, absl::Status status) {
  // A session may end only its own transfers.
  if (Find(id).session == session) End(id, std::move(status));
}

template <typename Output>
typename TransferTable<Output>::Transfer TransferTable<Output>::Find(TransferId id) const {
  absl::MutexLock lock(&mutex_);
  const auto it = transfers_.find(id);
  return it == transfers_.end() ? Transfer() : it->second;
}

template <typename Output>
typename TransferTable<Output>::Transfer TransferTable<Output>::Take(TransferId id) {
  absl::MutexLock lock(&mutex_);
  const auto it = transfers_.find(id);
  if (it == transfers_.end()) return Transfer();
  Transfer transfer = std::move(it->second);
  transfers_.erase(it);
  return transfer;
}

template <typename Output>
std::vector<TransferId> TransferTable<Output>::Ids(
    const std::function<bool(const Transfer&)>& which) const {
  std::vector<TransferId> ids;
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, transfer] : transfers_) {
    if (which(transfer)) ids.push_back(id);
  }
  return ids;
}

template <typename Output>
void TransferTable<Output>::SessionEnded(SessionId session) {
  const auto of_session = [session](const Transfer& transfer) {
    return transfer.session == session;
  };
  for (const TransferId id : Ids(of_session)) Lose(id, "disconnected");
}

template <typename Output>
void TransferTable<Output>::Shutdown() {
  {
    absl::MutexLock lock(&mutex_);
    shut_down_ = true;
  }
  for (const TransferId id : Ids([](const Transfer&) { return true; })) {
    End(id, absl::UnavailableError("the coordinator is shutting down"));
  }
}

template <typename Output>
size_t TransferTable<Output>::size() const {
  absl::MutexLock lock(&mutex_);
  return transfers_.size();
}

template class TransferTable<v1::ExecOutput>;
template class TransferTable<v1::ArchiveChunk>;

}  // namespace muster::service
