// The directory in which a local job's checkpoints outlive the cluster.
#ifndef MUSTER_CLI_LOCAL_LOCAL_CHECKPOINTS_H_
#define MUSTER_CLI_LOCAL_LOCAL_CHECKPOINTS_H_

#include <string>

#include "cli/output/console.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// Creates ./muster-checkpoints, with a folder for each job, and removes what is empty at the end.
// A lock protects the directory while other runs in the same folder use it.
class LocalCheckpoints {
 public:
  // Creates nothing if the job, a spec with its defaults, writes elsewhere or not at all. Prints a
  // note if the directory cannot be created: then checkpoints are removed with the cluster.
  LocalCheckpoints(const v1::JobSpec& defaulted, Console& console);
  ~LocalCheckpoints();
  LocalCheckpoints(const LocalCheckpoints&) = delete;
  LocalCheckpoints& operator=(const LocalCheckpoints&) = delete;

  // Absolute path; empty if nothing was created.
  const std::string& path() const { return path_; }

 private:
  // Creates and locks the directory `path`; returns 0 or errno.
  int Open(const std::string& path);

  std::string path_;
  int lock_ = -1;  // the open directory; -1: not locked
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOCAL_LOCAL_CHECKPOINTS_H_
