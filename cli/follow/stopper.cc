#include "cli/follow/stopper.h"

#include <utility>

namespace muster::cli {

void Stopper::Stop() {
  absl::MutexLock lock(&mutex_);
  if (stopped_) return;
  stopped_ = true;
  changed_.SignalAll();
  for (const auto& callback : callbacks_) callback.second();
}

bool Stopper::stopped() const {
  absl::MutexLock lock(&mutex_);
  return stopped_;
}

bool Stopper::SleepFor(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  return !changed_.WaitFor(&mutex_, duration, [this] {
    mutex_.AssertHeld();
    return stopped_;
  });
}

Stopper::Registration::Registration(Stopper& stopper, std::function<void()> on_stop)
    : stopper_(stopper) {
  absl::MutexLock lock(&stopper.mutex_);
  if (stopper.stopped_) on_stop();
  id_ = stopper.next_id_++;
  stopper.callbacks_.emplace(id_, std::move(on_stop));
}

Stopper::Registration::~Registration() {
  absl::MutexLock lock(&stopper_.mutex_);
  stopper_.callbacks_.erase(id_);
}

}  // namespace muster::cli
