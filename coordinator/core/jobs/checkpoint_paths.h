// The paths in specs under which other jobs may have checkpoints.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_CHECKPOINT_PATHS_H_
#define MUSTER_COORDINATOR_CORE_JOBS_CHECKPOINT_PATHS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "coordinator/core/actor.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// Finds out whether an actor may use the checkpoints that specs name: a directory of several jobs
// is open to the owner of any of them. What else a path leads to, such as by a symbolic link, is
// for the permissions of the file system.
class CheckpointPaths {
 public:
  void Add(const v1::JobSpec& spec);
  bool empty() const { return paths_.empty(); }
  // Compares the paths with those of a job that exists.
  void Meet(const v1::Job& job, const Actor& actor);
  // PERMISSION_DENIED if a path is only that of jobs that Meet has found not to be the actor's.
  absl::Status Check() const;

 private:
  struct Use {
    const char* field;
    bool writes;
    bool allowed = false;
    std::string job;  // of another owner, with checkpoints at the path
    std::string owner;
  };
  void AddPath(const char* field, const std::string& path, bool writes);

  std::map<std::string, Use> paths_;  // by path
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_CHECKPOINT_PATHS_H_
