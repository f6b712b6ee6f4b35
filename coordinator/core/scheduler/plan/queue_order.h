// The order of the queued jobs:
//
//   class  the highest first
//   owner  the least decayed use of the cluster per share first. A start counts at once, so owners
//          take turns. Of equals, the one whose first job has waited longest.
//   place  among the jobs of one owner: priority, then jobs that have run before, then those that
//          have waited longest, then submission.
//
// A job that restarts at once, after a failure, is before the other jobs of its class.
//
// Adding or removing a job takes time logarithmic in the number of jobs; finding its position takes
// that time for each owner.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_QUEUE_ORDER_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_QUEUE_ORDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "coordinator/core/scheduler/plan/order_tree.h"

namespace muster::core {

enum class JobClass : uint8_t { kLow, kNormal, kHigh, kCritical };
// kNormal for an empty or unknown name.
JobClass ClassOf(absl::string_view name);
absl::string_view NameOf(JobClass job_class);

inline constexpr size_t kClasses = 4;

// An owner's use of the cluster, in slot-seconds, and share.
struct Standing {
  double usage = 0;
  double share = 1;
};
using Standings = absl::FunctionRef<Standing(const std::string& owner)>;

// Not thread-safe. Copyable, for forecasts.
class QueueOrder {
 public:
  // The number of the line with the jobs that restart at once. Any other is 1 + its owner.
  static constexpr uint32_t kFrontLine = 0;

  // A queued job.
  struct Entry {
    JobId id;
    uint32_t owner = 0;
    uint32_t group = 0;
    uint32_t line = 0;
    JobClass job_class = JobClass::kNormal;
    QueuePlace place;
  };
  // The jobs of an owner in a class, or those of the class that restart at once.
  struct Line {
    OrderTree places;
    uint64_t slots = 0;
    std::map<uint32_t, std::set<QueuePlace>> groups;
    std::set<std::pair<QueuePlace, uint32_t>> heads;  // the first place of each group
  };
  using Lines = std::map<uint32_t, Line>;  // by number

  // `lookahead`: see SchedulerOptions.
  explicit QueueOrder(absl::Duration lookahead) : lookahead_(lookahead) {}

  void Add(const Entry& entry);
  void Remove(const Entry& entry);

  // Returns the index of the owner, and adds the owner if it is unknown.
  uint32_t AddOwner(const std::string& name);
  const std::string& owner(uint32_t owner) const { return owners_[owner]; }

  const Lines& lines(size_t job_class) const { return classes_[job_class].lines; }
  // The key that orders the lines of a class, the least first.
  double KeyOf(const Standing& standing, uint64_t slots_before) const {
    return (standing.usage +
            static_cast<double>(slots_before) * absl::ToDoubleSeconds(lookahead_)) /
           standing.share;
  }
  // The position of a job in the queue, 1 for the first: counts all jobs that would start before it
  // if each fitted.
  uint32_t PositionOf(const Entry& entry, Standings standings) const;

 private:
  struct Class {
    Lines lines;
    size_t jobs = 0;
    std::map<uint32_t, uint64_t> slots;  // by owner, in all lines
  };

  // The slots of the owner's jobs that are before its line in the class.
  uint64_t SlotsBeforeLine(uint32_t owner, size_t job_class) const;

  absl::Duration lookahead_;
  std::vector<std::string> owners_;
  absl::flat_hash_map<std::string, uint32_t> owner_index_;
  std::array<Class, kClasses> classes_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_QUEUE_ORDER_H_
