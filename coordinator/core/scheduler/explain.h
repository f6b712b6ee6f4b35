// Explains why a queued job waits, and estimates when it may start.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_EXPLAIN_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_EXPLAIN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/time/time.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/scheduler/scheduler.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// Everything that the queued job waits for: what delays it in the queue, a summary of the nodes,
// then each node that cannot take its share. Each with what would remove it.
std::vector<v1::WaitedFor> Blockers(const Job& job, const Scheduler& scheduler,
                                    const NodeMap& nodes, const Time& now);
// The part of it that concerns nodes.
std::vector<v1::WaitedFor> NodeBlockers(const v1::Resources& resources, const Scheduler& scheduler,
                                        const NodeMap& nodes, const Time& now);

// "needs 5 nodes with 1 free slot; the cluster has 2 usable nodes of that size, 3 too few": why a
// job with these resources would not fit if no other job ran; empty if it would.
std::string UnplaceableReason(const v1::Resources& resources, const NodeMap& nodes);

// "resources.memory is not enforced on 2 of 3 nodes that the job could use, e.g. n1: no cgroup":
// limits of the request that nodes do not enforce; empty if all do.
std::string LimitsWarning(const v1::Resources& resources, const NodeMap& nodes);

// When a queued job may start.
struct StartEstimate {
  std::optional<absl::Duration> in;  // nullopt: unknown
  std::string basis;                 // for people
};
StartEstimate EstimateOf(const Job& job, const JobTable& jobs, const Scheduler& scheduler,
                         const NodeMap& nodes, const Time& now);
// The same for a job that is not queued, if it were at this position.
StartEstimate EstimateAt(uint32_t position, const Job& job, const JobTable& jobs,
                         const Scheduler& scheduler, const NodeMap& nodes, const Time& now);
// The same for the first jobs of the queue, at most kForecastJobs.
std::vector<StartEstimate> EstimatesOf(const std::vector<JobId>& first, const JobTable& jobs,
                                       const Scheduler& scheduler, const NodeMap& nodes,
                                       const Time& now);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_EXPLAIN_H_
