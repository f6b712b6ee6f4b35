// Deadlines by key, the earliest at hand.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_TIMERS_H_
#define MUSTER_COORDINATOR_CORE_TIMERS_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/time.h"

namespace muster::core {

struct TimerKey {
  enum class Kind {
    kLease,       // of a node
    kCause,       // a job waits for the cause of its failure
    kRendezvous,  // a phase of a job's rendezvous
    kTimeLimit,   // of a job
    kRetention,   // a finished job is to be forgotten
    kPlacement,   // whoever waits in the queue is to be looked at again
    kWait,        // somebody waits for a job's ranks, and is to be told for whom
  };
  Kind kind;
  std::string name;  // of the node, or the job's id

  friend bool operator<(const TimerKey& a, const TimerKey& b) {
    return std::tie(a.kind, a.name) < std::tie(b.kind, b.name);
  }
};

class Timers {
 public:
  // Replaces the key's earlier deadline.
  void Set(const TimerKey& key, SteadyTime deadline);
  void Cancel(const TimerKey& key);
  std::optional<SteadyTime> Get(const TimerKey& key) const;
  // Infinite when there is none.
  SteadyTime Next() const;
  // Takes out what is due, earliest first.
  std::vector<TimerKey> TakeDue(SteadyTime now);
  void ExtendAll(absl::Duration by);

 private:
  std::map<TimerKey, SteadyTime> deadlines_;
  std::set<std::pair<SteadyTime, TimerKey>> order_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_TIMERS_H_
