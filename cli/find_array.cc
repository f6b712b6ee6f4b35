#include "cli/find_array.h"

#include <utility>

namespace muster::cli {

bool MayBeArray(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsInvalidArgument(status);
}

absl::StatusOr<JobOrArray> FindJobOrArray(ClusterClient& client, const std::string& name,
                                          Stopper* stopper) {
  absl::StatusOr<v1::Job> job = client.GetJob(name, stopper);
  if (job.ok()) return JobOrArray(*std::move(job));
  if (!MayBeArray(job.status())) return job.status();
  absl::StatusOr<v1::GetArrayResponse> array = client.GetArray(name);
  if (array.ok()) return JobOrArray(*std::move(array));
  return job.status();
}

}  // namespace muster::cli
