// Reads ranks' logs, byte by byte in order and each once, through restarts of coordinator, workers
// and job.
#ifndef MUSTER_CLI_LOGS_LOG_READER_H_
#define MUSTER_CLI_LOGS_LOG_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/client.h"
#include "cli/follow/stopper.h"
#include "cli/logs/log_printer.h"
#include "cli/output/console.h"

namespace muster::cli {

struct LogOptions {
  std::string job_id;
  bool follow = false;
  std::vector<uint32_t> ranks;  // empty: all
  std::string node;             // not empty: only ranks that run, or ran, there
  // 0: the newest; when following, each that comes after it too.
  uint64_t generation = 0;
  uint64_t tail_lines = 0;  // 0: from the start
  LogStyle style;
  bool wide = false;        // node and stream before each line
  bool names_only = false;  // the logs' names, not what is in them
  // How long a log that cannot be reached is asked for again: always, or once the job is over when
  // following.
  absl::Duration patience = absl::Seconds(5);
};

// Prints to the console, in text with `rank| ` before each line when there are several ranks. When
// following, returns when the job is over and all logs are drained. Errors: NOT_FOUND for no such
// job or log, INVALID_ARGUMENT for a rank, node or generation that the job does not have,
// UNAVAILABLE when a log's node stayed away (the rest was printed), CANCELLED once `stopper` is
// stopped.
absl::Status PrintLogs(ClusterClient& client, const LogOptions& options, Stopper& stopper,
                       Console& console);

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOGS_LOG_READER_H_
