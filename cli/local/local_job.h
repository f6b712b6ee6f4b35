// Sizes a local cluster for a job.
#ifndef MUSTER_CLI_LOCAL_LOCAL_JOB_H_
#define MUSTER_CLI_LOCAL_LOCAL_JOB_H_

#include "absl/status/status.h"
#include "cli/local/local_cluster.h"
#include "cli/output/console.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// Sets the numbers of nodes and slots that the job needs. `defaulted` is a spec with its defaults.
void FitToJob(const v1::JobSpec& defaulted, LocalClusterOptions& options);

// Prints a note to stderr if there are more slots than cores.
void NoteSharedCores(const LocalClusterOptions& options, Console& console);

// Exit code for an error of LocalCluster::Start.
int ExitCodeOfStart(const absl::Status& status);

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOCAL_LOCAL_JOB_H_
