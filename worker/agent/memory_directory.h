// Directory on a file system in memory, in which the ranks of train jobs that lose a peer leave
// their state for the job's next generation.
#ifndef MUSTER_WORKER_AGENT_MEMORY_DIRECTORY_H_
#define MUSTER_WORKER_AGENT_MEMORY_DIRECTORY_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace muster::agent {

// The directory of the worker with this data directory, below `parent`; empty if `parent` is.
std::string MemoryDirectory(absl::string_view parent, absl::string_view data_directory);
// The directory of one job in it; its ranks create it. Empty if `directory` is.
std::string MemoryDirectoryOf(absl::string_view directory, absl::string_view job_id);

// Time for which a job's state is kept while the job waits for its next generation.
inline constexpr absl::Duration kKeepState = absl::Minutes(10);

// Deletes the directories of jobs that have no `live` (job, generation) and that nothing was
// written to after `before`, and the whole directory if it is then empty. Failures are ignored.
void SweepMemoryDirectory(const std::string& directory,
                          const std::set<std::pair<std::string, uint64_t>>& live,
                          absl::Time before);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_MEMORY_DIRECTORY_H_
