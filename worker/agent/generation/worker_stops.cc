#include "worker/agent/generation/worker_stops.h"

#include <utility>

#include "common/time/proto_time.h"

namespace muster::agent {

WorkerStops::~WorkerStops() {
  *self_ = nullptr;
  for (const EventLoop::TimerId timer : away_timers_) loop_.Cancel(timer);
  if (patience_timer_.has_value()) loop_.Cancel(*patience_timer_);
}

void WorkerStops::OnCoordinatorLost() {
  if (std::exchange(coordinator_away_, true)) return;
  for (const auto& [key, generation] : generations_) {
    const v1::LostCoordinatorPolicy& policy = generation->launch().spec().on_lost_coordinator();
    if (!policy.has_stop_after()) continue;
    away_timers_.push_back(loop_.RunAfter(FromProto(policy.stop_after()), [this, key = key] {
      const auto affected = generations_.find(key);
      if (affected == generations_.end()) return;
      affected->second->StopByWorker(
          "CoordinatorLost",
          "the coordinator was unreachable for longer than on_lost_coordinator allows");
    }));
  }
}

void WorkerStops::OnCoordinatorConnected() {
  coordinator_away_ = false;
  for (const EventLoop::TimerId timer : away_timers_) loop_.Cancel(timer);
  away_timers_.clear();
}

void WorkerStops::AwaitEnd(absl::Duration patience, std::function<void()> done) {
  stopping_ = true;
  on_all_stopped_ = std::move(done);
  patience_timer_ = loop_.RunAfter(patience, [this] {
    patience_timer_.reset();
    if (on_all_stopped_) StopAll(std::nullopt, std::move(on_all_stopped_));
  });
  PostCheck();
}

void WorkerStops::StopAll(std::optional<absl::Duration> grace, std::function<void()> done) {
  stopping_ = true;
  on_all_stopped_ = std::move(done);
  for (const auto& [key, generation] : generations_) {
    generation->StopByWorker("WorkerStopped", "the worker is shutting down", grace);
  }
  PostCheck();
}

void WorkerStops::PostCheck() {
  loop_.Post([self = self_] {
    if (*self != nullptr) (*self)->CheckAllStopped();
  });
}

void WorkerStops::CheckAllStopped() {
  if (!on_all_stopped_) return;
  for (const auto& [key, generation] : generations_) {
    if (!generation->settled()) return;
  }
  std::exchange(on_all_stopped_, nullptr)();
}

}  // namespace muster::agent
