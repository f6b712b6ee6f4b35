// State shared by the simulated coordinator and machines: time, random source, invariants and
// streams.
#ifndef MUSTER_TESTS_SIMULATION_WORLD_H_
#define MUSTER_TESTS_SIMULATION_WORLD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "tests/simulation/checkers.h"
#include "tests/simulation/random.h"
#include "tests/simulation/scheduler.h"

namespace muster::simulation {

struct World {
  explicit World(uint64_t seed) : random(seed), checkers(MakeCheckers(violations)) {}

  template <typename Method, typename... Arguments>
  void NotifyCheckers(Method method, const Arguments&... arguments) {
    for (const auto& checker : checkers) ((*checker).*method)(arguments...);
  }
  void Note(const std::string& text) {
    if (!tracing) return;
    trace.push_back(
        absl::StrCat(absl::FormatDuration(scheduler.now().steady.since_start()), " ", text));
  }

  Scheduler scheduler;
  Random random;
  // Whether machines may lose their state, so that not every job can continue.
  bool forgetful = false;
  // Whether the only faults are workers that leave in order and an absent coordinator.
  bool orderly = false;
  uint64_t wait_notices = 0;  // number that arrived
  Violations violations;
  std::vector<std::unique_ptr<Checker>> checkers;
  bool tracing = false;
  std::vector<std::string> trace;
};

// A worker's session stream. Messages arrive in order, each after a delay. A break loses messages
// in transit, and each end notices it at its own time. The callbacks for the ends must outlive the
// simulation.
class Stream {
 public:
  Stream(World& world, uint64_t incarnation) : world_(world), incarnation_(incarnation) {}

  uint64_t incarnation() const { return incarnation_; }
  bool broken() const { return broken_; }

  // `deliver` runs unless the stream breaks first.
  void ToCoordinator(std::function<void()> deliver) { Carry(up_, std::move(deliver)); }
  void ToWorker(std::function<void()> deliver) { Carry(down_, std::move(deliver)); }
  void Break() {
    if (broken_) return;
    broken_ = true;
    const auto soon = [this] {
      // Usually noticed at once; a cut cable is noticed late, or only when the lease ends.
      return world_.orderly || world_.random.Chance(0.8)
                 ? world_.random.Between(absl::ZeroDuration(), absl::Milliseconds(50))
                 : world_.random.Between(absl::Seconds(1), absl::Seconds(20));
    };
    if (coordinator_end) world_.scheduler.After(soon(), coordinator_end);
    if (worker_end) world_.scheduler.After(soon(), worker_end);
  }

  std::function<void()> coordinator_end;
  std::function<void()> worker_end;
  SessionId session;
  std::string node;

 private:
  void Carry(SteadyTime& last, std::function<void()> deliver) {
    if (broken_) return;
    last = std::max(last, world_.scheduler.now().steady +
                              world_.random.Between(absl::ZeroDuration(), absl::Milliseconds(5)));
    world_.scheduler.At(last, [this, deliver = std::move(deliver)] {
      if (!broken_) deliver();
    });
  }

  World& world_;
  const uint64_t incarnation_;
  bool broken_ = false;
  SteadyTime up_;
  SteadyTime down_;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_WORLD_H_
