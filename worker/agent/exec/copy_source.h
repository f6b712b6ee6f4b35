// The file or folder that a copy sends.
#ifndef MUSTER_WORKER_AGENT_EXEC_COPY_SOURCE_H_
#define MUSTER_WORKER_AGENT_EXEC_COPY_SOURCE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/muster/v1/cluster.pb.h"
#include "worker/agent/job_user.h"
#include "worker/agent/storage/data_directory.h"

namespace muster::agent {

struct CopySource {
  std::string parent;
  std::string name;
  std::optional<JobUser> user;  // user who reads it; none: the worker's user
};

// Resolves the requested path: relative to the rank's working directory, or absolute within it or
// the job's checkpoint directories. Symlinks are followed and must not lead outside. Reads the
// disk, with the rights of the job's user if there is one. Errors: INVALID_ARGUMENT, NOT_FOUND,
// FAILED_PRECONDITION for a path outside; all name the node and the path.
absl::StatusOr<CopySource> ResolveCopySource(const v1::ReadFilesRequest& request,
                                             const DataDirectory& directory,
                                             const std::string& node_name,
                                             const JobUsers& users = {});

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_EXEC_COPY_SOURCE_H_
