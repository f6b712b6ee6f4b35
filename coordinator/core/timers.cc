#include "coordinator/core/timers.h"

namespace muster::core {
namespace {

// Whether the deadline ends a wait for messages, which may be late because the coordinator did not
// run.
bool EndsSilence(TimerKey::Kind kind) {
  switch (kind) {
    case TimerKey::Kind::kTimeLimit:
    case TimerKey::Kind::kRetention:
    case TimerKey::Kind::kAgeing:
    case TimerKey::Kind::kDelay:
    case TimerKey::Kind::kCoolDown:
      return false;
    default:
      return true;
  }
}

}  // namespace

void Timers::Set(const TimerKey& key, SteadyTime deadline) {
  const auto [entry, added] = deadlines_.emplace(key, deadline);
  if (!added) {
    order_.erase({entry->second, key});
    entry->second = deadline;
  }
  order_.insert({deadline, key});
}

void Timers::Cancel(const TimerKey& key) {
  const auto entry = deadlines_.find(key);
  if (entry == deadlines_.end()) return;
  order_.erase({entry->second, key});
  deadlines_.erase(entry);
}

std::optional<SteadyTime> Timers::Get(const TimerKey& key) const {
  const auto entry = deadlines_.find(key);
  if (entry == deadlines_.end()) return std::nullopt;
  return entry->second;
}

SteadyTime Timers::Next() const {
  return order_.empty() ? SteadyTime::Infinite() : order_.begin()->first;
}

std::vector<TimerKey> Timers::TakeDue(SteadyTime now) {
  std::vector<TimerKey> due;
  while (!order_.empty() && order_.begin()->first <= now) {
    due.push_back(order_.begin()->second);
    deadlines_.erase(due.back());
    order_.erase(order_.begin());
  }
  return due;
}

void Timers::ExtendSilence(absl::Duration by) {
  order_.clear();
  for (auto& [key, deadline] : deadlines_) {
    if (EndsSilence(key.kind)) deadline = deadline + by;
    order_.insert({deadline, key});
  }
}

}  // namespace muster::core
