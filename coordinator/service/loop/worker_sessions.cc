#include "coordinator/service/loop/worker_sessions.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"

namespace muster::service {

absl::StatusOr<SessionId> WorkerSessions::Add(std::shared_ptr<WorkerSession> session) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return absl::UnavailableError("the coordinator is shutting down");
  if (sessions_.size() >= limits::kSessions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the coordinator has ", limits::kSessions, " sessions, the limit"));
  }
  const SessionId id(++last_id_);
  sessions_.emplace(id, std::move(session));
  return id;
}

void WorkerSessions::Remove(SessionId id) {
  absl::MutexLock lock(&mutex_);
  sessions_.erase(id);
}

std::shared_ptr<WorkerSession> WorkerSessions::Find(SessionId id) {
  absl::MutexLock lock(&mutex_);
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : it->second;
}

bool WorkerSessions::Send(SessionId id, v1::CoordinatorMessage message) {
  const std::shared_ptr<WorkerSession> session = Find(id);
  if (session == nullptr) return false;
  session->Send(std::move(message));
  if (unread_bytes_ > max_unread_bytes_) CloseLongest();
  return true;
}

void WorkerSessions::CloseLongest() {
  std::vector<std::shared_ptr<WorkerSession>> sessions;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, session] : sessions_) sessions.push_back(session);
  }
  size_t most = 0;
  WorkerSession* longest = nullptr;
  for (const auto& session : sessions) {
    const size_t bytes = session->unread_bytes();
    if (bytes <= most) continue;
    most = bytes;
    longest = session.get();
  }
  if (longest != nullptr) longest->CloseUnread();
}

void WorkerSessions::Close(SessionId id, absl::Status status) {
  if (const auto session = Find(id)) session->Close(std::move(status));
}

void WorkerSessions::CloseAll(absl::Status status) {
  absl::flat_hash_map<SessionId, std::shared_ptr<WorkerSession>> sessions;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    sessions = sessions_;
  }
  for (const auto& [id, session] : sessions) session->Close(status);
}

}  // namespace muster::service
