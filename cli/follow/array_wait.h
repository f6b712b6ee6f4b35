// Waits for the tasks of an array of jobs.
#ifndef MUSTER_CLI_FOLLOW_ARRAY_WAIT_H_
#define MUSTER_CLI_FOLLOW_ARRAY_WAIT_H_

#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/client.h"
#include "cli/follow/follow.h"
#include "cli/follow/stopper.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::cli {

struct ArrayResult {
  v1::GetArrayResponse array;
  // That of the first task, by index, that has finished without success; otherwise 0.
  int exit_code = 0;
};

// Follows each task with `options`, whose timeout is that of all tasks together. `on_task` is
// called for each task, by index, once it is in the state that was waited for. Errors are those of
// FollowJob.
absl::StatusOr<ArrayResult> WaitForArray(ClusterClient& client, const v1::GetArrayResponse& array,
                                         const FollowOptions& options, Stopper& stopper,
                                         FollowObserver& observer,
                                         const std::function<void(const v1::Job&)>& on_task);

}  // namespace muster::cli

#endif  // MUSTER_CLI_FOLLOW_ARRAY_WAIT_H_
