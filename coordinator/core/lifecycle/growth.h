// Finds further nodes for elastic jobs that run on fewer nodes than they could use.
//
// The search takes place soon after nodes may have become free, and not otherwise. If no job in the
// queue waits for resources and nodes are free for a job, its caller stops the job as for a
// requeue, so that the ranks can save their state, and places it again in the step in which the
// last rank has ended.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_LIFECYCLE_GROWTH_H_
#define MUSTER_COORDINATOR_CORE_LIFECYCLE_GROWTH_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/scheduler/scheduler.h"

namespace muster::core {

class Growth {
 public:
  Growth(JobTable& jobs, const NodeTable& nodes, const Scheduler& scheduler, Context& context)
      : jobs_(jobs), nodes_(nodes), scheduler_(scheduler), context_(context) {}

  // Watches a job whose generation has become RUNNING, if the job could use further nodes.
  void Watch(Job& job);
  // Ends the watch of a job whose generation has ended.
  void Forget(const Job& job) { growable_.erase(job.id()); }
  // Arms the timer if nodes may have become free since the last decision. Called before each one.
  void OnDecision();

  // A job that is to be stopped, and the message for people.
  struct Candidate {
    JobId job;
    std::string message;
  };
  // Returns the first job for which nodes are free, after its timer has fired.
  std::optional<Candidate> OnTimer();

 private:
  void Arm();
  bool SomeJobGrows() const;
  // Returns why the job grows; nullopt if no nodes are free for it.
  std::optional<std::string> TryGrow(Job& job) const;

  JobTable& jobs_;
  const NodeTable& nodes_;
  const Scheduler& scheduler_;
  Context& context_;
  std::set<JobId> growable_;    // running jobs that could use further nodes
  uint64_t nodes_version_ = 0;  // as of the last decision
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_LIFECYCLE_GROWTH_H_
