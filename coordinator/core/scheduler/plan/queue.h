// The queue of jobs that wait for resources, in the order of queue_order.h.
//
// Jobs with equal requests, time limits and classes form a group, so that a decision looks at each
// group once, not at each job. Time counts as waiting while the job is in this queue: not while it
// is held or delayed, or waits for other jobs or for a place of its array.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_QUEUE_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/scheduler/plan/order_tree.h"
#include "coordinator/core/scheduler/plan/queue_order.h"
#include "coordinator/core/scheduler/plan/shape_table.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

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

// Not thread-safe. Copyable, for forecasts.
class JobQueue {
 public:
  using Entry = QueueOrder::Entry;
  // Jobs of one shape that a decision cannot tell apart, except by their order and owner.
  struct Group {
    uint32_t shape = 0;
    absl::Duration length;
    JobClass job_class = JobClass::kNormal;
    bool preempted = false;
    uint32_t jobs = 0;
  };

  // `lookahead`: see SchedulerOptions.
  explicit JobQueue(absl::Duration lookahead) : order_(lookahead) {}

  // Adds the job, or moves it to its new place.
  void Add(const QueueItem& item);
  void Remove(const JobId& id);

  bool empty() const { return index_.empty(); }
  size_t size() const { return index_.size(); }
  // Null for a job that is not queued.
  const Entry* Find(const JobId& id) const;
  // See QueueOrder::PositionOf; 0 for a job that is not queued.
  uint32_t PositionOf(const JobId& id, Standings standings) const;

  const Entry& entry(uint32_t job) const { return entries_[job]; }
  const Group& group(uint32_t group) const { return groups_[group]; }
  const ShapeTable::Shape& ShapeOfGroup(uint32_t group) const {
    return shapes_[groups_[group].shape];
  }
  const ShapeTable& shapes() const { return shapes_; }
  const QueueOrder& order() const { return order_; }
  // Bounds the indices of groups.
  size_t group_end() const { return groups_.size(); }
  size_t group_count() const { return group_index_.size(); }

  // ---- Jobs that do not fit on the cluster
  // See ShapeTable::Check.
  using Check = absl::FunctionRef<std::optional<std::string>(const JobId&)>;
  std::vector<JobId> CheckShapes(Check check);
  // Makes CheckShapes check all requests again, because the nodes of the cluster have changed.
  void UncheckShapes() { shapes_.Uncheck(); }
  // The reason why the job does not fit; empty if it fits, is not queued, or has not been checked.
  const std::string& UnplaceableReason(const JobId& id) const;

 private:
  using GroupKey = std::tuple<uint32_t, absl::Duration, JobClass, bool>;

  absl::flat_hash_map<std::string, uint32_t> index_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_entries_;
  std::vector<Group> groups_;
  std::vector<uint32_t> free_groups_;
  std::map<GroupKey, uint32_t> group_index_;
  ShapeTable shapes_;
  QueueOrder order_;
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
