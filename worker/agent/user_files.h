// Directories and files of the data directory that belong to the user of a job.
//
// Directories of the worker on the way to them have mode 0711: a job can enter those whose names it
// knows, but list and change none. All functions expect that the parent of `path` belongs to the
// worker, so that a job cannot replace what they open.
#ifndef MUSTER_WORKER_AGENT_USER_FILES_H_
#define MUSTER_WORKER_AGENT_USER_FILES_H_

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "worker/agent/job_user.h"

namespace muster::agent {

// Creates the directory of the worker, and lets other users pass through it.
absl::Status MakePassage(const std::string& path);

// Creates the directory with mode 0700 and gives it to the user. An existing one is given to the
// user, too, but not what it contains. FAILED_PRECONDITION if something else has its name.
absl::Status MakeUserDirectory(const std::string& path, const JobUser& user);

// Whether the user can reach the directory, which belongs to them: FAILED_PRECONDITION names the
// first directory on the way that they may not enter.
absl::Status CheckReachable(const std::string& path, const JobUser& user);

// The contents of a regular file in a directory of the user, without following a link at its end.
// Nothing, if it is missing, larger than `max_bytes`, of another kind or, with `uid`, of another
// user.
std::optional<std::string> ReadUserFile(const std::string& path, size_t max_bytes,
                                        std::optional<uid_t> uid);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_USER_FILES_H_
