// Exit codes of the command line.
#ifndef MUSTER_CLI_EXIT_CODE_H_
#define MUSTER_CLI_EXIT_CODE_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/exit_code.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// The exit codes of the command line, as `muster --help` prints them. Verbs that follow a job also
// exit with its own code: that of the first failing rank, 128+n for a signal.
struct ExitMeaning {
  ExitCode code;
  const char* meaning;
};
absl::Span<const ExitMeaning> ExitMeanings();

// For a call that failed.
int ExitCodeOf(const absl::Status& status);

// For a job that is over: 0 for success alone, else its own code where it has one that a process
// can exit with.
int ExitCodeOf(const v1::Job& job);

// SUCCEEDED, FAILED, CANCELLED, TIMED_OUT.
bool IsOver(v1::JobState state);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXIT_CODE_H_
