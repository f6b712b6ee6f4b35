// Simulated time: runs scheduled actions in order.
#ifndef MUSTER_TESTS_SIMULATION_SCHEDULER_H_
#define MUSTER_TESTS_SIMULATION_SCHEDULER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/time/time.h"
#include "common/time/time.h"

namespace muster::simulation {

class Scheduler {
 public:
  Time now() const {
    absl::Duration left;
    const bool even = absl::IDivDuration(now_, absl::Milliseconds(700), &left) % 2 == 0;
    return {SteadyTime(now_),
            absl::FromUnixSeconds(1'700'000'000) + now_ + (even ? wall_step_ : -wall_step_)};
  }
  // Sets the wall clock forward and back by `step`, again and again.
  void StepWallClock(absl::Duration step) { wall_step_ = step; }

  void After(absl::Duration delay, std::function<void()> action) {
    actions_.emplace(std::make_pair(now_ + delay, next_++), std::move(action));
  }
  void At(SteadyTime when, std::function<void()> action) {
    actions_.emplace(std::make_pair(std::max(when.since_start(), now_), next_++),
                     std::move(action));
  }
  // Runs actions until `end`, until none is left, or until `stop` returns true.
  void RunUntil(
      SteadyTime end, const std::function<bool()>& stop = [] { return false; }) {
    while (!actions_.empty() && actions_.begin()->first.first <= end.since_start() && !stop()) {
      auto first = actions_.extract(actions_.begin());
      now_ = first.key().first;
      first.mapped()();
    }
  }

 private:
  absl::Duration now_ = absl::ZeroDuration();
  absl::Duration wall_step_ = absl::ZeroDuration();
  uint64_t next_ = 0;  // keeps the order of simultaneous actions
  std::map<std::pair<absl::Duration, uint64_t>, std::function<void()>> actions_;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_SCHEDULER_H_
