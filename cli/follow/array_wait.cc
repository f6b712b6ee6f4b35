#include "cli/follow/array_wait.h"

#include <algorithm>

#include "cli/exit_code.h"
#include "common/now.h"
#include "common/status.h"

namespace muster::cli {

absl::StatusOr<ArrayResult> WaitForArray(ClusterClient& client, const v1::GetArrayResponse& array,
                                         const FollowOptions& options, Stopper& stopper,
                                         FollowObserver& observer,
                                         const std::function<void(const v1::Job&)>& on_task) {
  const SteadyTime begin = Now().steady;
  ArrayResult result;
  for (const v1::Job& task : array.tasks()) {
    FollowOptions left = options;
    left.timeout = std::max(options.timeout - (Now().steady - begin), absl::ZeroDuration());
    ASSIGN_OR_RETURN(const v1::Job job, FollowJob(client, task.job_id(), left, stopper, observer));
    if (IsOver(job.state()) && result.exit_code == kExitSuccess) result.exit_code = ExitCodeOf(job);
    on_task(job);
  }
  ASSIGN_OR_RETURN(result.array, client.GetArray(array.array().array_id()));
  return result;
}

}  // namespace muster::cli
