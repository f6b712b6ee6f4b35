// Prints the logs of the tasks of an array of jobs.
#ifndef MUSTER_CLI_LOGS_ARRAY_LOGS_H_
#define MUSTER_CLI_LOGS_ARRAY_LOGS_H_

#include "absl/status/status.h"
#include "cli/client.h"
#include "cli/follow/stopper.h"
#include "cli/logs/log_reader.h"
#include "cli/output/console.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::cli {

// The number of tasks whose logs can be followed at the same time.
inline constexpr int kFollowedTasks = 64;

// As PrintLogs, for each task that has started, with the task's index before each line: `3| `, or
// `3/0| ` if the task has several ranks. Without following, the logs of one task come after those
// of another; when following, lines of all tasks come as they arrive. Returns the first error; the
// other tasks' logs are printed nevertheless.
absl::Status PrintArrayLogs(ClusterClient& client, const v1::GetArrayResponse& array,
                            const LogOptions& options, Stopper& stopper, Console& console);

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOGS_ARRAY_LOGS_H_
