// Exit codes of the `muster` command line. Verbs that follow a job also exit with the job's own
// code: that of the first rank that failed, or 128+n for signal n.
#ifndef MUSTER_CLI_EXIT_CODE_H_
#define MUSTER_CLI_EXIT_CODE_H_

#include "absl/status/status.h"
#include "common/process/exit_code.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// Exit code for a failed call.
int ExitCodeOf(const absl::Status& status);

// Exit code for a finished job: 0 only if it succeeded; otherwise the job's own code if it is in 1
// to 255, else kExitTimeLimit or kExitFailure.
int ExitCodeOf(const v1::Job& job);

// Whether the job has finished: SUCCEEDED, FAILED, CANCELLED or TIMED_OUT.
bool IsOver(v1::JobState state);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXIT_CODE_H_
