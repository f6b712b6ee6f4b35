// Answers a worker whose heartbeats do not reach the coordinator, and which asks through a peer.
#ifndef MUSTER_COORDINATOR_CORE_LEASE_ANSWER_H_
#define MUSTER_COORDINATOR_CORE_LEASE_ANSWER_H_

#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/nodes/node_table.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

// The state of each generation of the question whose job exists. A generation without living ranks
// on the node, or whose worker was replaced, is lost: the job may run elsewhere.
v1::LeaseAnswer AnswerLease(const v1::LeaseQuestion& question, const JobTable& jobs,
                            const NodeTable& nodes, const Context& context);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_LEASE_ANSWER_H_
