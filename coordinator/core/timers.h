// Deadlines by key, with fast access to the earliest one.
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
#include "common/time/time.h"

namespace muster::core {

struct TimerKey {
  enum class Kind {
    kLease,       // a node's lease
    kJobLease,    // the lease of a job's ranks on a node that is SUSPECT
    kCause,       // the cause of a job's failure may still arrive
    kRendezvous,  // a phase of a job's rendezvous
    kTimeLimit,   // a job's time limit
    kRetention,   // finished jobs are due to be deleted
    kPlacement,   // the queue has to be examined again
    kAgeing,      // a waiting job is overdue
    kReasons,     // further jobs have to be told why they do not fit, or that they do
    kHang,        // all ranks of a job have been silent for too long, or were inspected
    kStall,       // no rank of a train job has completed a step for too long
    kGrowth,      // elastic jobs look for further nodes
    kDelay,       // a delayed job joins the queue
    kCoolDown,    // a node may have ranks again after failed launches
    kSelfTest,    // a node's self-test is due again, or its answer is missing
    kStop,        // a stopping job's directives are repeated, or its ranks abandoned
    kRecovery,    // workers have not sent their records
    kWait,        // a long wait for a job's ranks is to be announced
  };
  Kind kind;
  std::string name;  // the node's name or the job's id

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
  // The earliest deadline; infinite when there is none.
  SteadyTime Next() const;
  // Removes and returns the keys that are due, earliest first.
  std::vector<TimerKey> TakeDue(SteadyTime now);
  // Extends the deadlines of messages from nodes. Others, such as time limits, remain.
  void ExtendSilence(absl::Duration by);

 private:
  std::map<TimerKey, SteadyTime> deadlines_;
  std::set<std::pair<SteadyTime, TimerKey>> order_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_TIMERS_H_
