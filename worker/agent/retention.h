// How long a worker keeps what finished jobs left on its disk.
#ifndef MUSTER_WORKER_AGENT_RETENTION_H_
#define MUSTER_WORKER_AGENT_RETENTION_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace muster::agent {

struct Retention {
  absl::Duration age = absl::Hours(7 * 24);
  uint64_t bytes = uint64_t{10} << 30;  // of all finished generations' logs together

  // For people: "7 days and 10GiB".
  std::string Text() const;
};

struct Swept {
  int generations = 0;  // whose logs were deleted
  int jobs = 0;         // of which nothing is left
  uint64_t log_bytes = 0;
};

// Goes through `jobs_directory` (data_directory.h). Logs of a finished generation are deleted once
// they have not been written to for `age`, and, the oldest first, while all of them together take
// more than `bytes`. The rest of a job, its working and checkpoint directories, goes when it has no
// logs left and nothing in it has been changed for `age`: size alone never deletes a checkpoint.
// Nothing of `live` (job, generation) is touched. What cannot be deleted is logged and left.
Swept Sweep(const std::string& jobs_directory, const Retention& retention,
            const std::set<std::pair<std::string, uint64_t>>& live, absl::Time now);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_RETENTION_H_
