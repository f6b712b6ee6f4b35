// Jobs that have waited for too long: they are served so that no class starves.
//
// A job ages while it is the first of its owner and class that fits on the cluster and its owner's
// limit, and no job of both that was submitted earlier runs: any other wait is its owner's doing.
// After SchedulerOptions.ageing it is overdue. The oldest overdue job of each class starts ahead of
// all that are not critical, or has a reservation against them. The jobs that have started in this
// way, and the reservations, take a small part of the slots, or are a single job.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_OVERDUE_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_OVERDUE_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/scheduler/plan/cluster.h"
#include "coordinator/core/scheduler/plan/queue.h"
#include "coordinator/core/scheduler/plan/queue_order.h"

namespace muster::core {

// The first job of an owner and class that fits on the cluster and the owner's limit.
struct Head {
  JobId job;                   // empty: none
  SteadyTime since;            // that it has been the first, and has waited for others
  bool waits_for_own = false;  // a job of both that was submitted earlier runs
};
using Heads = std::map<std::pair<JobClass, uint32_t>, Head>;  // by class and line of the queue

// The heads at a time, given those of the decision before.
struct Ageing {
  Heads heads;
  std::vector<Head> overdue;                         // the oldest of each class, oldest first
  SteadyTime next_overdue = SteadyTime::Infinite();  // when the next is overdue
};
// `fits`: whether the entry's job fits on its owner's limit.
Ageing Age(const JobQueue& queue, const Cluster& cluster, const Heads& last, absl::Duration ageing,
           SteadyTime now, absl::FunctionRef<bool(const JobQueue::Entry&)> fits);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_OVERDUE_H_
