// Configuration of the scheduler: see docs/design/scheduler.md.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_OPTIONS_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"

namespace muster::core {

// 0: no limit.
struct OwnerQuota {
  uint32_t running_slots = 0;
  uint32_t queued_jobs = 0;
};

struct SchedulerOptions {
  // A job is overdue when it has waited for others for so long: see overdue.h.
  absl::Duration ageing = absl::Hours(24);
  // The part of the slots that overdue jobs may have ahead of others; at least one job.
  uint32_t overdue_percent = 5;
  // The time after which past use of the cluster counts half in fair share.
  absl::Duration half_life = absl::Hours(7 * 24);
  // A start counts at once as this much use of its slots, so that one decision alternates between
  // owners.
  absl::Duration lookahead = absl::Hours(1);
  // Owners' shares of the cluster, relative to one another.
  double default_share = 1;
  std::map<std::string, double> shares;
  OwnerQuota default_limits;
  std::map<std::string, OwnerQuota> limits;
  // Whether jobs may take the place of running jobs of a lower priority class.
  bool preemption = true;
  // The number of blocked jobs at the front of the queue that slots are kept for.
  uint32_t reservations = 1;
  // The number of distinct requests that one decision examines and finds no place for.
  uint32_t backfill_depth = 256;
  // The highest priority class that tokens of each role may use.
  std::map<std::string, std::string> highest_class = {{"submit", "normal"}, {"admin", "critical"}};

  double ShareOf(const std::string& owner) const {
    const auto share = shares.find(owner);
    return share == shares.end() ? default_share : share->second;
  }
  const OwnerQuota& LimitsOf(const std::string& owner) const {
    const auto of_owner = limits.find(owner);
    return of_owner == limits.end() ? default_limits : of_owner->second;
  }
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_OPTIONS_H_
