// State shared by the simulated coordinator and machines: time, random source, invariants and
// streams.
#ifndef MUSTER_TESTS_SIMULATION_WORLD_H_
#define MUSTER_TESTS_SIMULATION_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "tests/simulation/checkers.h"
#include "tests/simulation/random.h"
#include "tests/simulation/scheduler.h"

namespace muster::simulation {

// Deliberate mistakes in the rule of deadlines, which the checkers must find.
enum class Mutation {
  kNone,
  kForgetPromises,       // promises do not survive the worker
  kHeartbeatsAreBans,    // a member that is connected counts as one that has banned
  kAgreementIsEvidence,  // a peer that cannot reach the coordinator either extends leases
  kNoMargin,             // ranks are killed at the end of the lease
};

struct World {
  explicit World(uint64_t seed) : random(seed) {
    AddRankCheckers(violations, checkers);
    AddCheckpointCheckers(violations, checkers);
    AddStoreCheckers(violations, checkers);
  }

  template <typename Method, typename... Arguments>
  void NotifyCheckers(Method method, const Arguments&... arguments) {
    for (const auto& checker : checkers) ((*checker).*method)(arguments...);
  }
  // Counts a fault that was injected, or a rare situation that was reached.
  void CountFault(const std::string& kind) { ++faults[kind]; }
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
  // Whether the coordinator may start with another store than its own.
  bool loses_stores = false;
  // Whether ranks and workers report things that are out of bounds.
  bool garbles_reports = false;
  // Whether some workers speak the previous protocol version, until they are upgraded.
  bool mixes_versions = false;
  // Whether ranks, shims, workers and whole machines may be stopped for a while.
  bool pauses = false;
  // Whether the network may be cut between any machines, in one direction or both.
  bool cuts = false;
  Mutation mutation = Mutation::kNone;
  // Whether command jobs run for longer than leases.
  bool long_commands = false;
  // Whether messages between machines may be very late, which loses them.
  bool loses_messages = true;
  // Directed pairs of machines between which the network is cut; the coordinator's is number 0.
  std::set<std::pair<uint64_t, uint64_t>> cut_links;
  bool IsOpen(uint64_t from, uint64_t to) const { return cut_links.count({from, to}) == 0; }
  bool IsOpenBothWays(uint64_t a, uint64_t b) const { return IsOpen(a, b) && IsOpen(b, a); }
  absl::Duration job_lease = absl::Seconds(30);
  std::map<std::string, std::set<std::string>> checkpoints;  // names by job, on a shared disk
  uint64_t wait_notices = 0;                                 // number that arrived
  std::map<std::string, uint64_t> faults;
  Violations violations;
  Checkers checkers;
  bool tracing = false;
  std::vector<std::string> trace;
};

// A worker's session stream. Messages arrive in order, each after a delay. A break loses messages
// in transit, and each end notices it at its own time. The callbacks for the ends must outlive the
// simulation.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(World& world, uint64_t incarnation) : world_(world), incarnation_(incarnation) {}

  uint64_t incarnation() const { return incarnation_; }
  bool broken() const { return broken_; }

  // `deliver` runs unless the stream breaks first, or its network is cut.
  void ToCoordinator(std::function<void()> deliver) { Carry(up_, cut_up_, std::move(deliver)); }
  void ToWorker(std::function<void()> deliver) { Carry(down_, cut_down_, std::move(deliver)); }
  // Loses all messages in these directions from now on. The stream breaks because of it.
  void Cut(bool up, bool down) {
    cut_up_ |= up;
    cut_down_ |= down;
    world_.scheduler.After(world_.random.Between(absl::ZeroDuration(), absl::Seconds(20)),
                           [self = shared_from_this()] { self->Break(); });
  }
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
  uint64_t coordinator = 0;  // its process

 private:
  void Carry(SteadyTime& last, const bool& cut, std::function<void()> deliver) {
    if (broken_) return;
    last = std::max(last, world_.scheduler.now().steady +
                              world_.random.Between(absl::ZeroDuration(), absl::Milliseconds(5)));
    world_.scheduler.At(last, [self = shared_from_this(), &cut, deliver = std::move(deliver)] {
      if (!self->broken_ && !cut) deliver();
    });
  }

  World& world_;
  const uint64_t incarnation_;
  bool broken_ = false;
  bool cut_up_ = false;
  bool cut_down_ = false;
  SteadyTime up_;
  SteadyTime down_;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_WORLD_H_
