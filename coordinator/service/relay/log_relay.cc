#include "coordinator/service/relay/log_relay.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/random_id.h"

namespace muster::service {

absl::StatusOr<TransferId> LogRelay::Open(SessionId session, std::shared_ptr<LogReader> reader) {
  absl::MutexLock lock(&mutex_);
  if (shut_down_) return absl::UnavailableError("the coordinator is shutting down");
  if (transfers_.size() >= limits::kLogTransfers) {
    return absl::ResourceExhaustedError(
        absl::StrCat(limits::kLogTransfers,
                     " log transfers are in progress, the limit of the "
                     "coordinator; try again later"));
  }
  TransferId id;
  do {
    id = TransferId(RandomId());
  } while (transfers_.contains(id));
  transfers_[id] = {session, std::move(reader), nullptr};
  return id;
}

void LogRelay::Start(TransferId id, const v1::ReadLogRequest& request) {
  SessionId session;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = transfers_.find(id);
    if (it == transfers_.end()) return;
    session = it->second.session;
  }
  v1::CoordinatorMessage message;
  message.mutable_open_log()->set_transfer(id.value());
  *message.mutable_open_log()->mutable_request() = request;
  if (!sessions_.Send(session, std::move(message))) {
    End(id, absl::UnavailableError("the node that has the log is not connected"));
  }
}

void LogRelay::Next(TransferId id) {
  std::shared_ptr<LogSource> source;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = transfers_.find(id);
    if (it != transfers_.end()) source = it->second.source;
  }
  if (source != nullptr) source->Next();
}

void LogRelay::Cancel(TransferId id) {
  Transfer transfer;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = transfers_.find(id);
    if (it == transfers_.end()) return;
    transfer = std::move(it->second);
    transfers_.erase(it);
  }
  v1::CoordinatorMessage message;
  message.mutable_close_log()->set_transfer(id.value());
  sessions_.Send(transfer.session, std::move(message));
  if (transfer.source != nullptr)
    transfer.source->Stop(absl::CancelledError("the client stopped reading"));
}

absl::Status LogRelay::Attach(TransferId id, std::shared_ptr<LogSource> source) {
  absl::MutexLock lock(&mutex_);
  const auto it = transfers_.find(id);
  if (it == transfers_.end()) return absl::CancelledError("the transfer has no reader");
  if (it->second.source != nullptr) {
    return absl::AlreadyExistsError("the transfer already has a stream");
  }
  it->second.source = std::move(source);
  return absl::OkStatus();
}

void LogRelay::Chunk(TransferId id, v1::LogChunk chunk) {
  std::shared_ptr<LogReader> reader;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = transfers_.find(id);
    if (it != transfers_.end()) reader = it->second.reader;
  }
  if (reader != nullptr) reader->OnChunk(std::move(chunk));
}

void LogRelay::End(TransferId id, absl::Status status) {
  std::shared_ptr<LogReader> reader;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = transfers_.find(id);
    if (it == transfers_.end()) return;
    reader = std::move(it->second.reader);
    transfers_.erase(it);
  }
  reader->OnEnd(std::move(status));
}

void LogRelay::Unavailable(SessionId session, TransferId id, absl::Status status) {
  {
    absl::MutexLock lock(&mutex_);
    const auto it = transfers_.find(id);
    // A session may end only its own transfers.
    if (it == transfers_.end() || it->second.session != session) return;
  }
  End(id, std::move(status));
}

void LogRelay::EndAll(const std::function<bool(const Transfer&)>& which,
                      const absl::Status& status) {
  std::vector<Transfer> ended;
  {
    absl::MutexLock lock(&mutex_);
    for (auto it = transfers_.begin(); it != transfers_.end();) {
      if (which(it->second)) {
        ended.push_back(std::move(it->second));
        transfers_.erase(it++);
      } else {
        ++it;
      }
    }
  }
  for (const Transfer& transfer : ended) {
    transfer.reader->OnEnd(status);
    if (transfer.source != nullptr) transfer.source->Stop(status);
  }
}

void LogRelay::SessionEnded(SessionId session) {
  EndAll([session](const Transfer& transfer) { return transfer.session == session; },
         absl::UnavailableError("the node that has the log disconnected"));
}

void LogRelay::Shutdown() {
  {
    absl::MutexLock lock(&mutex_);
    shut_down_ = true;
  }
  EndAll([](const Transfer&) { return true; },
         absl::UnavailableError("the coordinator is shutting down"));
}

size_t LogRelay::size() const {
  absl::MutexLock lock(&mutex_);
  return transfers_.size();
}

}  // namespace muster::service
