// Directory on a file system in memory, in which the ranks of train jobs that lose a peer leave
// their state for the job's next generation.
//
//   PARENT/muster-0123456789abcdef/      of one worker, named after its data directory; a worker
//                                        that runs has a shared lock on it (flock)
//   PARENT/muster-0123456789abcdef/JOB/  of one job; its ranks create it, or the worker if they run
//                                        as another user
#ifndef MUSTER_WORKER_AGENT_STORAGE_MEMORY_DIRECTORY_H_
#define MUSTER_WORKER_AGENT_STORAGE_MEMORY_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/files/owned_fd.h"

namespace muster::agent {

// The directory of the worker with this data directory, below `parent`.
std::string MemoryDirectoryPath(absl::string_view parent, absl::string_view data_directory);
// The directory of one job in it. Empty if `directory` is.
std::string MemoryDirectoryOf(absl::string_view directory, absl::string_view job_id);

// Time for which a job's state is kept while the job waits for its next generation, and a worker's
// directory while the worker does not run.
inline constexpr absl::Duration kKeepState = absl::Minutes(10);

// A worker's directory, while the worker runs. Thread-safe.
class MemoryDirectory {
 public:
  // Creates and locks it. Errors of errno; PERMISSION_DENIED if the directory is another user's.
  // `has_job_users`: other users can pass through to the directories of their jobs.
  static absl::StatusOr<std::unique_ptr<MemoryDirectory>> Open(absl::string_view parent,
                                                               absl::string_view data_directory,
                                                               bool has_job_users = false);
  // Deletes the directory if it is empty.
  ~MemoryDirectory();
  MemoryDirectory(const MemoryDirectory&) = delete;
  MemoryDirectory& operator=(const MemoryDirectory&) = delete;

  const std::string& path() const { return path_; }

  // Deletes the directory of a job that has ended. Failures are ignored.
  void Discard(absl::string_view job_id) const;
  // Deletes the directories of jobs that have no `live` (job, generation) and that nothing was
  // written to after `before`. Failures are ignored.
  void Sweep(const std::set<std::pair<std::string, uint64_t>>& live, absl::Time before) const;
  // The same for all jobs in the directories of workers that have ended and not been started again,
  // which are then deleted, too.
  void SweepAbandoned(absl::Time before) const;

 private:
  MemoryDirectory(std::string path, OwnedFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  const std::string path_;
  const OwnedFd lock_;  // the directory
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_STORAGE_MEMORY_DIRECTORY_H_
