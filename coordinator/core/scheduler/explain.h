// Explains why a queued job waits, and estimates when it may start.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_EXPLAIN_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_EXPLAIN_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/time.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/scheduler/queue.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// The reasons why the job cannot be placed: a summary, then each node that cannot take its share.
std::vector<v1::WaitedFor> Blockers(const Job& job, const JobQueue& queue, const NodeMap& nodes,
                                    absl::Time now);

// "needs 5 nodes with 1 free slot; the cluster has 2 usable nodes of that size, 3 too few": why a
// job with these resources would not fit if no other job ran; empty if it would.
std::string UnplaceableReason(const v1::Resources& resources, const NodeMap& nodes);

// The time until the queued job may start; nullopt when it is unknown.
std::optional<absl::Duration> TimeToStart(const Job& job, const JobTable& jobs,
                                          const JobQueue& queue, const NodeMap& node_map, Time now);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_EXPLAIN_H_
