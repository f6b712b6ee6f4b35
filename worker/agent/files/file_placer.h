// Places the files of jobs in the directories of their ranks before these start.
#ifndef MUSTER_WORKER_AGENT_FILES_FILE_PLACER_H_
#define MUSTER_WORKER_AGENT_FILES_FILE_PLACER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/security/client_security.h"
#include "proto/muster/v1/job.pb.h"
#include "worker/agent/job_user.h"

namespace muster::agent {

// Uses a thread and a connection of its own, so that large files delay nothing else. Placements run
// one at a time, so a file that several of them need is fetched once. Thread-safe.
class FilePlacer {
 public:
  // `directory` holds the cached files, at most `max_bytes`.
  static absl::StatusOr<std::unique_ptr<FilePlacer>> Open(std::string coordinator,
                                                          security::ClientSecurity security,
                                                          std::string directory,
                                                          uint64_t max_bytes);
  // Aborts the running placement and drops those that have not begun.
  ~FilePlacer();
  FilePlacer(const FilePlacer&) = delete;
  FilePlacer& operator=(const FilePlacer&) = delete;

  // Copies the files of `spec` into each directory of the user, then calls `done` on the placer's
  // thread with the errors of FileCache::Place, or UNAVAILABLE if the coordinator cannot be
  // reached.
  void Place(const v1::JobSpec& spec, std::vector<std::string> directories,
             const std::optional<JobUser>& user, std::function<void(const absl::Status&)> done);

 private:
  class Impl;
  explicit FilePlacer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_FILES_FILE_PLACER_H_
