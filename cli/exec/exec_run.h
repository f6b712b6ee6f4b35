// Runs a command beside a rank, connected to this process's standard streams.
#ifndef MUSTER_CLI_EXEC_EXEC_RUN_H_
#define MUSTER_CLI_EXEC_EXEC_RUN_H_

#include "absl/status/statusor.h"
#include "cli/client.h"
#include "cli/output/console.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::cli {

// Returns the command's exit code. The first SIGINT is passed on to the command; a second one, and
// SIGTERM and SIGHUP, disconnect, which kills the command (CANCELLED). Must be called before the
// process has other threads. Errors: those of ClusterService.Exec.
absl::StatusOr<int> RunExec(const ClusterClient::Options& options,
                            const v1::ExecInput::Start& start, Console& console);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXEC_EXEC_RUN_H_
