// The client's view of jobs: a job's status with its ranks, waits and queue position.
#ifndef MUSTER_COORDINATOR_CORE_VIEWS_H_
#define MUSTER_COORDINATOR_CORE_VIEWS_H_

#include "common/time.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/nodes/fence.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/recovery/hangs.h"
#include "coordinator/core/recovery/stragglers.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/scheduler/scheduler.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// Reads the parts and changes nothing.
class Views {
 public:
  Views(const JobTable& jobs, const NodeTable& nodes, const Fence& fence,
        const Scheduler& scheduler, const Rendezvous& rendezvous, const Hangs& hangs,
        const Stragglers& stragglers)
      : jobs_(jobs),
        nodes_(nodes),
        fence_(fence),
        scheduler_(scheduler),
        rendezvous_(rendezvous),
        hangs_(hangs),
        stragglers_(stragglers) {}

  // The job without ranks, their inspections, waits and past failures.
  v1::Job Summary(const Job& job) const;
  // The answer to a request that changes the job: its summary, and warnings about its spec.
  v1::Job Answer(const Job& job) const;
  // The job as lists show it: of its spec, only what tells jobs apart, and no texts of ranks.
  v1::Job ListEntry(const Job& job) const;
  v1::Job Details(const Job& job, Time now) const;

 private:
  const JobTable& jobs_;
  const NodeTable& nodes_;
  const Fence& fence_;
  const Scheduler& scheduler_;
  const Rendezvous& rendezvous_;
  const Hangs& hangs_;
  const Stragglers& stragglers_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_VIEWS_H_
