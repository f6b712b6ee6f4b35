// The client's view of the queue, and of what would become of a job that is submitted now.
#ifndef MUSTER_COORDINATOR_CORE_QUEUE_VIEWS_H_
#define MUSTER_COORDINATOR_CORE_QUEUE_VIEWS_H_

#include <cstddef>
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

  // The jobs of the queue, then those that are QUEUED but wait for something other than resources:
  // at most `limit` (0: limits::kJobsPerList) of those that follow `after`, or of those beyond the
  // first `count` if it is in the queue no longer.
  v1::GetQueueResponse Queue(uint32_t limit, size_t count, const JobId& after,
                             const Time& now) const;
  // Asks the scheduler, on a copy of its state, about a job of the actor. An array counts as one of
  // its tasks.
  v1::Forecast ForecastJob(const v1::JobSpec& spec, const Actor& actor, const Time& now) const;

 private:
  v1::QueuedJob QueuedView(const JobQueue::Entry& entry, const Time& now) const;
  v1::QueuedJob WaitingView(const Job& job, const Time& now) const;

  const JobTable& jobs_;
  const NodeTable& nodes_;
  const Scheduler& scheduler_;
  const Views& views_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_QUEUE_VIEWS_H_
