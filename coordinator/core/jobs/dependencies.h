// Dependencies between jobs: the jobs and arrays that have to end before a job starts.
//
// Whether a dependency is met is decided, and recorded with the job that waits, when the other job
// ends. So finished jobs can be deleted, and a job has only dependencies on jobs that have not
// ended.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_DEPENDENCIES_H_
#define MUSTER_COORDINATOR_CORE_JOBS_DEPENDENCIES_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "coordinator/core/jobs/job.h"

namespace muster::core {

// The end of a job or an array.
struct Ended {
  std::string id;
  // The state of the job or array; JOB_STATE_UNSPECIFIED: it is no longer known.
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
};

// Removes the job or array that has ended from `after`. Returns the reason, for people, if it did
// not end as `after` demands; an empty text otherwise.
std::string Settle(const Ended& ended, After& after);

// "waits for prepare-x7k2q to succeed, for sweep-8m2kd to end".
std::string DependencyText(const After& after);

// The jobs that wait for others, by what they wait for.
class Dependents {
 public:
  void Add(const Job& job);
  void Remove(const Job& job);
  // The jobs that wait for this job or array; they no longer count as waiting for it.
  std::vector<JobId> Take(const std::string& id);
  // The jobs and arrays that others wait for.
  std::vector<std::string> Targets() const;

 private:
  std::map<std::string, std::set<JobId>> waiting_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_DEPENDENCIES_H_
