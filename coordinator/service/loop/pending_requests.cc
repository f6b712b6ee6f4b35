#include "coordinator/service/loop/pending_requests.h"

#include <utility>

namespace muster::service {

RequestId PendingRequests::Add(Callback callback) {
  absl::MutexLock lock(&mutex_);
  const RequestId id(++last_id_);
  waiting_.emplace(id, std::move(callback));
  return id;
}

void PendingRequests::Complete(core::Reply reply) {
  Callback callback;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = waiting_.find(reply.request);
    if (it == waiting_.end()) return;
    callback = std::move(it->second);
    waiting_.erase(it);
  }
  callback(std::move(reply));
}

void PendingRequests::FailAll() {
  absl::flat_hash_map<RequestId, Callback> waiting;
  {
    absl::MutexLock lock(&mutex_);
    waiting.swap(waiting_);
  }
  for (auto& [id, callback] : waiting) {
    callback({id, absl::UnavailableError("the coordinator is shutting down"), false});
  }
}

}  // namespace muster::service
