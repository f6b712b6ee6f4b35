#include "coordinator/service/auth/live_calls.h"

#include <utility>
#include <vector>

namespace muster::service {
namespace {

constexpr absl::Duration kCheckInterval = absl::Milliseconds(250);

}  // namespace

LiveCalls::LiveCalls(Authorizer& authorizer)
    : authorizer_(authorizer), thread_([this] { Run(); }) {}

LiveCalls::~LiveCalls() {
  stopped_.Notify();
  thread_.join();
}

uint64_t LiveCalls::Add(std::string method, Authorizer::Caller caller, End end) {
  absl::MutexLock lock(&mutex_);
  calls_[++last_id_] = {std::move(method), std::move(caller), std::move(end)};
  return last_id_;
}

void LiveCalls::Remove(uint64_t id) {
  // Destroyed without the lock, because gRPC may run other callbacks meanwhile.
  absl::flat_hash_map<uint64_t, Call>::node_type removed;
  absl::MutexLock lock(&mutex_);
  removed = calls_.extract(id);
}

void LiveCalls::Check() {
  const uint64_t epoch = authorizer_.Refresh();
  std::vector<std::pair<End, absl::Status>> ended;
  {
    absl::MutexLock lock(&mutex_);
    for (auto& [id, call] : calls_) {
      absl::Status status;
      if (std::exchange(call.checked, epoch) == epoch) {
        status = authorizer_.CheckNotExpired(call.caller);
      } else {
        status = authorizer_.Check(call.method, call.caller);
      }
      if (!status.ok() && call.end != nullptr) {
        ended.emplace_back(std::exchange(call.end, nullptr), std::move(status));
      }
    }
  }
  // Without the lock, because the end of a call removes it.
  for (const auto& [end, status] : ended) end(status);
}

void LiveCalls::Run() {
  while (!stopped_.WaitFor(kCheckInterval)) Check();
}

}  // namespace muster::service
