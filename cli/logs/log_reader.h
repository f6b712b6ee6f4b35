// Prints the logs of a job's ranks, each byte once and in order, through restarts of the
// coordinator, the workers and the job.
#ifndef MUSTER_CLI_LOGS_LOG_READER_H_
#define MUSTER_CLI_LOGS_LOG_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/client.h"
#include "cli/follow/signals.h"
#include "cli/logs/log_printer.h"
#include "cli/output/console.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::cli {

struct LogOptions {
  std::string job_id;
  std::optional<uint32_t> task;  // index of the job in its array; printed before each line
  bool follow = false;
  std::vector<uint32_t> ranks;  // empty: all
  std::string node;             // if not empty: only ranks that run, or ran, on this node
  std::string stream;           // stdout or stderr; empty: both
  // 0: the newest; when following, also each later one.
  uint64_t generation = 0;
  uint64_t tail_lines = 0;     // limit for all logs together; 0: from the start
  uint64_t tail_per_rank = 0;  // limit for each rank; 0: from the start
  std::optional<absl::Time> since;
  LogStyle style;
  bool wide = false;        // print node and stream before each line
  bool names_only = false;  // print the names of the logs, not their contents
  bool lines_only = false;  // print neither generations nor that the coordinator is unreachable
  // How long to retry a log that cannot be reached; when following, this applies once the job has
  // finished, and until then the retries do not end.
  absl::Duration patience = absl::Seconds(5);
};

// Prints to the console; as text with `rank| ` before each line if there are several ranks. Lines
// come in the order in which the ranks began them; beyond 256 ranks, in this order within each
// group of 256 ranks. When following, lines that exist at the start come in this order, later ones
// as they arrive; returns when the job has finished and all logs are read. Errors: NOT_FOUND for an
// unknown job or log, INVALID_ARGUMENT for a rank, node, generation or stream that the job does not
// have, UNAVAILABLE if a log's node stayed unreachable (the rest was printed), CANCELLED once
// `stopper` is stopped.
absl::Status PrintLogs(ClusterClient& client, const LogOptions& options, Stopper& stopper,
                       Console& console);

// The number of tasks whose logs can be followed at the same time.
inline constexpr int kFollowedTasks = 64;

// As PrintLogs, for each task that has started, with the task's index before each line: `3| `, or
// `3/0| ` if the task has several ranks. Without following, the logs of one task come after those
// of another; when following, lines of all tasks come as they arrive. Returns the first error; the
// other tasks' logs are printed nevertheless.
absl::Status PrintArrayLogs(ClusterClient& client, const v1::GetArrayResponse& array,
                            const LogOptions& options, Stopper& stopper, Console& console);

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOGS_LOG_READER_H_
