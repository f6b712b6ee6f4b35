// Deletes old logs and directories of finished jobs.
#ifndef MUSTER_WORKER_AGENT_STORAGE_RETENTION_H_
#define MUSTER_WORKER_AGENT_STORAGE_RETENTION_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace muster::agent {

struct Retention {
  absl::Duration age = absl::Hours(7 * 24);
  uint64_t bytes = uint64_t{10} << 30;  // total size of the logs of all finished generations

  // "7 days and 10GiB".
  std::string Text() const;
};

struct SweepResult {
  int generations = 0;  // generations whose logs were deleted
  int jobs = 0;         // jobs of which all files were deleted
  uint64_t log_bytes = 0;
};

// Applies `retention` to `jobs_directory` (data_directory.h). Logs of a finished generation are
// deleted once they have not been written to for `age`, and, oldest first, while all of them
// together exceed `bytes`. A job's working and checkpoint directories are deleted when it has no
// logs left and nothing in them has changed for `age`: size alone never deletes a checkpoint.
// Nothing of a `live` (job, generation) is touched. Links are deleted and never followed, even
// while a process replaces directories by links: std::filesystem::remove_all of libstdc++ opens
// each directory relative to its parent with O_NOFOLLOW. Deletions that fail are logged and
// skipped.
SweepResult Sweep(const std::string& jobs_directory, const Retention& retention,
                  const std::set<std::pair<std::string, uint64_t>>& live, absl::Time now);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_STORAGE_RETENTION_H_
