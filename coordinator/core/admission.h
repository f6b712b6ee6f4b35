// Decides when a queued job joins the scheduler's queue: not before the jobs that it depends on
// have ended, and not while its array runs as many tasks as it may.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_ADMISSION_H_
#define MUSTER_COORDINATOR_CORE_ADMISSION_H_

#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/scheduler/scheduler.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

class Admission {
 public:
  Admission(JobTable& jobs, Scheduler& scheduler) : jobs_(jobs), scheduler_(scheduler) {}

  // Adds the job, which is QUEUED, to the scheduler's queue if it may start. Otherwise it joins
  // later, and its reason says what it waits for.
  void Enter(Job& job);
  // The job has ended or is held. Another task of its array may join the queue.
  void Leave(Job& job);

  // A job that can no longer start, because a job that it depends on did not end as it has to.
  struct Hopeless {
    JobId job;
    std::string why;
  };
  // Takes the jobs and arrays that have ended off the dependencies of others; those whose last one
  // this was join the queue. Returns the jobs that can no longer start.
  std::vector<Hopeless> SettleDependencies();

 private:
  JobTable& jobs_;
  Scheduler& scheduler_;
};

// What a queued job waits for before it joins the scheduler's queue; nullopt if it waits for
// nothing.
std::optional<v1::Wait> AdmissionWait(const Job& job, const JobTable& jobs, Time now);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_ADMISSION_H_
