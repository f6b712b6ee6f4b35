// The arrays of jobs: how many of their tasks are in each state, and which tasks may run when the
// number of tasks that run at the same time is limited.
//
// A task holds one of its array's places from when it joins the scheduler's queue until it ends or
// is held, also while it is being restarted. Tasks without a place wait, and the lowest index gets
// the next place.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_ARRAYS_H_
#define MUSTER_COORDINATOR_CORE_JOBS_ARRAYS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "coordinator/core/jobs/job.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// The id of a task: "sweep-x7k2q-3".
JobId TaskId(const std::string& array_id, uint32_t index);

struct JobArray {
  std::string id;
  std::string name;
  std::string owner;
  std::string priority_class;
  uint32_t count = 0;
  uint32_t concurrency = 0;     // 0: no limit
  uint64_t queue_sequence = 0;  // of its first task
  google::protobuf::Timestamp submit_time;
  google::protobuf::Timestamp finish_time;  // of the last task that ended
  // Indices of the tasks that are known: finished ones are deleted after a while.
  std::set<uint32_t> tasks;
  std::map<v1::JobState, uint32_t> states;
  std::map<uint32_t, v1::JobState> unsuccessful;  // tasks that ended otherwise than SUCCEEDED
  std::set<uint32_t> placed;                      // tasks that hold a place
  std::set<uint32_t> waiting;                     // tasks that wait for one

  bool ended() const;
  // RUNNING while a task is active, QUEUED before, HELD if all tasks that have not ended are;
  // then SUCCEEDED, or the state of the first task that ended otherwise.
  v1::JobState state() const;
  v1::JobArray View() const;
};

class Arrays {
 public:
  // Null when unknown.
  const JobArray* Find(const std::string& id) const;
  const std::map<std::string, JobArray>& all() const { return arrays_; }

  // Adds a job that has been submitted or restored. Jobs that are no task of an array are ignored
  // by these functions.
  void Add(const Job& job);
  void Remove(const Job& job);
  // The state of the job is about to become `to`. Returns the array if all of its tasks have ended
  // with this; null otherwise.
  const JobArray* OnTransition(const Job& job, v1::JobState to);

  // Gives the task a place. False if there is none: the task is then given one by Release.
  bool TakePlace(const Job& job);
  // The task, if it holds a place, gives it up. Returns the task that gets it.
  std::optional<JobId> Release(const Job& job);
  // "array sweep-x7k2q runs 4 of at most 4 tasks"; empty for a task that does not wait for a place.
  std::string WaitText(const Job& job) const;

 private:
  JobArray* ArrayOf(const Job& job);

  std::map<std::string, JobArray> arrays_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_ARRAYS_H_
