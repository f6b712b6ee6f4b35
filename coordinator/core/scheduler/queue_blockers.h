// Explains what delays a queued job in the queue, and what would end the delay on a node.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_QUEUE_BLOCKERS_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_QUEUE_BLOCKERS_H_

#include <string>
#include <vector>

#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/nodes/node.h"
#include "coordinator/core/scheduler/scheduler.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// The reasons of the scheduler's last decision not to start the job, other than slots in use. Empty
// if there are none.
std::vector<v1::WaitedFor> QueueBlockers(const JobId& job, const Scheduler& scheduler,
                                         const Time& now);

// The same for a verdict and a plan that need not be those of the last decision, about a job at
// `position` that takes `length` at most.
std::vector<v1::WaitedFor> QueueBlockers(const JobId& job, const std::string& owner,
                                         uint32_t position, absl::Duration length,
                                         const Verdict& verdict, const Plan& plan,
                                         const Scheduler& scheduler, const Time& now);

// "resources", or what else delays the job, in a few words.
std::string WaitsFor(const JobId& job, const Verdict& verdict, const Plan& plan);

// The command to run, or the event to wait for, before the node can take a share of a job; empty if
// none is known.
std::string RemedyOf(const Node& node, const Cluster& cluster, const Time& now);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_QUEUE_BLOCKERS_H_
