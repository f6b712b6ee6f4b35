// Finds jobs and arrays by what users call them: ids, names, prefixes and idempotency keys.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_JOB_NAMES_H_
#define MUSTER_COORDINATOR_CORE_JOBS_JOB_NAMES_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "coordinator/core/jobs/dependencies.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/options.h"

namespace muster::core {

// An idempotency key and the owner who used it.
using OwnerAndKey = std::pair<std::string, std::string>;

class JobNames {
 public:
  JobNames(const JobTable& jobs, const Options& options) : jobs_(jobs), options_(options) {}

  // Resolves a job id, the name of one job only, the name of one array only with a task's index
  // ("sweep-3"), or a unique prefix of an id, in this order. Errors: NOT_FOUND, INVALID_ARGUMENT
  // with the matching jobs when ambiguous, or when the name is that of an array.
  absl::StatusOr<JobId> Resolve(absl::string_view name) const;
  // As Resolve, for an array.
  absl::StatusOr<std::string> ResolveArray(absl::string_view name) const;
  // Resolves the names in a spec; adds to `ended` the jobs and arrays that have ended already.
  // Errors: as Resolve, with the path of the field.
  absl::StatusOr<After> ResolveDependencies(const v1::Dependencies& given,
                                            std::vector<Ended>& ended) const;

  // The job, which may be deleted, that the key created; null when the key is unused.
  const JobId* FindKey(const OwnerAndKey& key) const;
  void AddKey(OwnerAndKey key, JobId job) { keys_.emplace(std::move(key), std::move(job)); }
  void RemoveKey(const OwnerAndKey& key) { keys_.erase(key); }

  // The job or array that a name refers to.
  struct Match {
    std::string id;
    bool is_array = false;
    uint64_t queue_sequence = 0;
  };

 private:
  // The jobs and arrays that an id, a name or the beginning of an id may refer to.
  std::vector<Match> MatchesOf(const std::string& given) const;
  absl::StatusOr<Match> ResolveAny(absl::string_view name) const;

  const JobTable& jobs_;
  const Options& options_;
  std::map<OwnerAndKey, JobId> keys_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_JOB_NAMES_H_
