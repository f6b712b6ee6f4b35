// The client's view of the queue, and of what would become of a job that is submitted now.
#ifndef MUSTER_COORDINATOR_CORE_QUEUE_VIEWS_H_
#define MUSTER_COORDINATOR_CORE_QUEUE_VIEWS_H_

#include <cstdint>

#include "common/time.h"
#include "coordinator/core/actor.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/scheduler/scheduler.h"
#include "coordinator/core/views.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// Reads the parts and changes nothing.
class QueueViews {
 public:
  QueueViews(const JobTable& jobs, const NodeTable& nodes, const Scheduler& scheduler,
             const Views& views)
      : jobs_(jobs), nodes_(nodes), scheduler_(scheduler), views_(views) {}

  // The first `limit` jobs of the queue (0: limits::kJobsPerList), then those that are QUEUED but
  // wait for something other than resources.
  v1::GetQueueResponse Queue(uint32_t limit, const Time& now) const;
  // Asks the scheduler, on a copy of its state, about a job of the actor. An array counts as one of
  // its tasks.
  v1::Forecast ForecastJob(const v1::JobSpec& spec, const Actor& actor, const Time& now) const;

 private:
  void AddQueuedJob(const Job& job, v1::GetQueueResponse& response) const;
  void AddWaitingJobs(uint32_t limit, const Time& now, v1::GetQueueResponse& response) const;

  const JobTable& jobs_;
  const NodeTable& nodes_;
  const Scheduler& scheduler_;
  const Views& views_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_QUEUE_VIEWS_H_
