// The queue of jobs that wait for resources, and their order:
//
//   class  the highest first
//   owner  the least decayed use of the cluster per share first. A start counts at once, so owners
//          take turns. Of equals, the one whose first job has waited longest.
//   place  among the jobs of one owner: priority, then jobs that have run before, then those that
//          have waited longest, then submission.
//
// A job that restarts at once, after a failure, is before the other jobs of its class. Time counts
// as waiting while the job is in this queue: not while it is held or delayed, or waits for other
// jobs or for a place of its array.
//
// The queue is indexed by class, owner and group (equal requests and time limits), so that a
// decision looks at each group once, not at each job. Adding, removing and finding a position take
// time logarithmic in the number of jobs, times the number of owners for a position.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_QUEUE_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_QUEUE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/scheduler/plan/order_tree.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

enum class JobClass : uint8_t { kLow, kNormal, kHigh, kCritical };
// kNormal for an empty or unknown name.
JobClass ClassOf(absl::string_view name);
absl::string_view NameOf(JobClass job_class);

inline constexpr size_t kClasses = 4;

// A job as the queue sees it.
struct QueueItem {
  JobId id;
  std::string owner;
  JobClass job_class = JobClass::kNormal;
  int32_t priority = 0;
  bool has_run = false;
  bool restarting = false;  // its generation has just ended
  bool preempted = false;   // since its last start
  uint64_t sequence = 0;    // order of submission
  uint32_t slots = 1;       // the least that it takes
  v1::Resources resources;
  absl::Duration length = absl::InfiniteDuration();  // the longest that it can run, grace included
  SteadyTime waiting_since;                          // as if it had waited without a break
};

// An owner's use of the cluster, in slot-seconds, and share.
struct Standing {
  double usage = 0;
  double share = 1;
};
using Standings = absl::FunctionRef<Standing(const std::string& owner)>;

// Not thread-safe. Copyable, for forecasts.
class JobQueue {
 public:
  // `lookahead`: see SchedulerOptions.
  explicit JobQueue(absl::Duration lookahead) : lookahead_(lookahead) {}

  // Requests that are equal.
  struct Shape {
    uint64_t serial = 0;  // never used again, unlike the index of the shape
    v1::Resources resources;
    uint32_t slots = 1;
    uint32_t groups = 0;
    absl::flat_hash_set<uint32_t> jobs;
    std::string unplaceable;
  };
  // Jobs of one shape that a decision cannot tell apart, except by their order and owner.
  struct Group {
    uint32_t shape = 0;
    absl::Duration length;
    JobClass job_class = JobClass::kNormal;
    bool preempted = false;
    uint32_t jobs = 0;
  };
  struct Entry {
    JobId id;
    uint32_t owner = 0;
    uint32_t group = 0;
    uint32_t line = 0;
    bool queued = false;  // false: unused
    QueuePlace place;
  };
  // The jobs of an owner in a class.
  struct Line {
    OrderTree places;
    uint64_t slots = 0;
    std::map<uint32_t, std::set<QueuePlace>> groups;
    std::set<std::pair<QueuePlace, uint32_t>> heads;  // the first place of each group
  };
  // By number: 0 for jobs that are before all others of the class, else 1 + owner.
  using Lines = std::map<uint32_t, Line>;

  void Add(const QueueItem& item);
  void Remove(const JobId& id);

  bool empty() const { return index_.empty(); }
  size_t size() const { return index_.size(); }
  // Null for a job that is not queued.
  const Entry* Find(const JobId& id) const;
  // 1 for the first job; 0 for a job that is not queued. Counts all jobs that would start before it
  // if each fitted.
  uint32_t PositionOf(const JobId& id, Standings standings) const;
  uint32_t QueuedJobs(const std::string& owner) const;
  // The owners with queued jobs.
  std::vector<std::string> Owners() const;

  const Entry& entry(uint32_t job) const { return entries_[job]; }
  const Group& group(uint32_t group) const { return groups_[group]; }
  const Shape& shape(uint32_t shape) const { return shapes_[shape]; }
  const Shape& ShapeOfGroup(uint32_t group) const { return shapes_[groups_[group].shape]; }
  const std::string& owner(uint32_t owner) const { return owners_[owner]; }
  const Lines& lines(size_t job_class) const { return classes_[job_class].lines; }
  // Bounds the indices of groups.
  size_t group_end() const { return groups_.size(); }
  size_t group_count() const { return group_index_.size(); }
  // This orders the lines of a class, the least first.
  double KeyOf(const Standing& standing, uint64_t slots_before) const {
    return (standing.usage +
            static_cast<double>(slots_before) * absl::ToDoubleSeconds(lookahead_)) /
           standing.share;
  }

  // ---- Jobs that do not fit on the cluster, found by their requests, of which a long queue has
  // few distinct ones. Calls `check` with a job of each distinct request that has no verdict yet.
  // It returns the reason why such jobs do not fit, empty if they fit, or nullopt if that is not
  // known yet. Returns the jobs whose reason has changed.
  using Check = absl::FunctionRef<std::optional<std::string>(const JobId&)>;
  std::vector<JobId> CheckShapes(Check check);
  // Makes CheckShapes check all requests again, because the nodes of the cluster have changed.
  void UncheckShapes();
  // Whether it is not known yet if jobs of this shape fit.
  bool IsUnchecked(uint32_t shape) const { return unchecked_.count(shape) != 0; }
  // The reason why the job does not fit; empty if it fits, is not queued, or has not been checked.
  const std::string& UnplaceableReason(const JobId& id) const;

 private:
  using GroupKey = std::tuple<uint32_t, absl::Duration, JobClass, bool>;
  struct Class {
    Lines lines;
    size_t jobs = 0;
    std::map<uint32_t, uint64_t> slots;  // by owner, in all lines
  };

  uint32_t AddOwner(const std::string& name);
  uint32_t AddShape(const QueueItem& item);
  uint32_t AddGroup(const QueueItem& item);
  void LeaveGroup(uint32_t job);
  size_t ClassOfJob(uint32_t job) const {
    return static_cast<size_t>(groups_[entries_[job].group].job_class);
  }
  // Puts the entry into the line of its class, or takes it out.
  void Enter(uint32_t job, bool restarting);
  void Leave(uint32_t job);
  // The slots of the owner's jobs that are before its line in the class.
  uint64_t SlotsBeforeLine(uint32_t owner, size_t job_class) const;

  absl::Duration lookahead_;
  absl::flat_hash_map<std::string, uint32_t> index_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_entries_;
  std::vector<std::string> owners_;
  std::vector<uint32_t> owner_jobs_;
  absl::flat_hash_map<std::string, uint32_t> owner_index_;
  std::vector<Shape> shapes_;
  std::vector<uint32_t> free_shapes_;
  std::map<std::string, uint32_t> shape_index_;  // by serialized v1::Resources
  uint64_t next_serial_ = 1;
  std::set<uint32_t> unchecked_;  // shapes without a verdict that still holds
  std::vector<Group> groups_;
  std::vector<uint32_t> free_groups_;
  std::map<GroupKey, uint32_t> group_index_;
  std::array<Class, kClasses> classes_;
};

// Iterates over the queue in order. Jobs may be removed meanwhile; those that are added may be
// missed.
class QueueWalk {
 public:
  // The walk keeps a reference to the queue, and calls `standings` only here.
  QueueWalk(const JobQueue& queue, Standings standings);

  // The next job that has not been skipped; null at the end.
  const JobQueue::Entry* Next();
  // Counts the slots of the job that Next returned last as a start of its owner.
  void Count(uint32_t slots);
  // Passes over all other jobs of the group, or those in the line of the last job only.
  void SkipGroup(uint32_t group);
  void SkipGroupInLine(uint32_t group);

 private:
  struct Cursor {
    uint32_t line = 0;
    Standing standing;
    double key = 0;
    SteadyTime waiting_since;  // of its next job, when `key` was computed
    bool open = false;
    std::vector<std::pair<QueuePlace, uint32_t>> heads;  // a heap, once open
    std::vector<uint32_t> skipped;                       // groups
  };

  void EnterClass();
  // Computes the key from what the cursor's owner has started.
  void UpdateKey(Cursor& cursor);
  bool IsBefore(const Cursor& a, const Cursor& b) const;
  // Returns whether the cursor has another job, which is then at the front of its heads.
  bool Advance(Cursor& cursor);

  const JobQueue& queue_;
  std::map<uint32_t, Standing> standings_;      // by line
  std::map<uint32_t, uint64_t> started_slots_;  // by line of the owner, in all classes
  size_t class_ = kClasses;
  std::vector<Cursor> cursors_;
  std::vector<size_t> order_;  // a heap of cursors
  size_t last_ = 0;            // the cursor of the last job
  uint32_t last_owner_ = 0;
  std::vector<bool> skipped_;
  size_t left_;  // groups that have not been skipped
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_QUEUE_H_
