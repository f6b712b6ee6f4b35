// The client's view of nodes, of jobs (a job's status with its ranks, waits and queue position), of
// the queue, and of the forecast for a job that is not submitted yet.
#ifndef MUSTER_COORDINATOR_CORE_VIEWS_VIEWS_H_
#define MUSTER_COORDINATOR_CORE_VIEWS_VIEWS_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/time/time.h"
#include "coordinator/core/actor.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/nodes/fence.h"
#include "coordinator/core/nodes/node.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/owners/owner_table.h"
#include "coordinator/core/recovery/hangs.h"
#include "coordinator/core/recovery/stragglers.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/scheduler/scheduler.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/node.pb.h"

namespace muster::core {

// Reads the parts and changes nothing.
class Views {
 public:
  Views(const JobTable& jobs, const OwnerTable& owners, const NodeTable& nodes, const Fence& fence,
        const Scheduler& scheduler, const Rendezvous& rendezvous, const Hangs& hangs,
        const Stragglers& stragglers)
      : jobs_(jobs),
        owners_(owners),
        nodes_(nodes),
        fence_(fence),
        scheduler_(scheduler),
        rendezvous_(rendezvous),
        hangs_(hangs),
        stragglers_(stragglers) {}

  // The node with its slots and the ranks that occupy them.
  v1::Node OfNode(const Node& node, const Time& now) const;
  // The job without ranks, their inspections, waits and past failures.
  v1::Job Summary(const Job& job) const;
  // The answer to a request that changes the job: its summary, and warnings about its spec.
  v1::Job Answer(const Job& job) const;
  // The job as lists show it: without texts of ranks, and with few fields of its spec.
  v1::Job ListEntry(const Job& job) const;
  v1::Job Details(const Job& job, Time now) const;

  // ---- queue_views.cc
  // The jobs of the queue, then those that are QUEUED but wait for something other than resources:
  // at most `limit` (0: limits::kJobsPerList) of those that follow `after`, or of those beyond the
  // first `count` if `after` has left the queue.
  v1::GetQueueResponse Queue(uint32_t limit, size_t count, const JobId& after,
                             const Time& now) const;
  // Asks the scheduler, on a copy of its state, about a job of the actor. An array counts as one of
  // its tasks.
  v1::Forecast ForecastJob(const v1::JobSpec& spec, const Actor& actor, const Time& now) const;

 private:
  // The reason why a queued job has not joined the scheduler's queue yet; nullopt if there is
  // none.
  std::optional<v1::Wait> AdmissionWait(const Job& job, const Time& now) const;
  v1::QueuedJob QueuedView(const JobQueue::Entry& entry, const Time& now) const;
  v1::QueuedJob WaitingView(const Job& job, const Time& now) const;

  const JobTable& jobs_;
  const OwnerTable& owners_;
  const NodeTable& nodes_;
  const Fence& fence_;
  const Scheduler& scheduler_;
  const Rendezvous& rendezvous_;
  const Hangs& hangs_;
  const Stragglers& stragglers_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_VIEWS_VIEWS_H_
