// What a job needs of a cluster that is started for it alone.
#ifndef MUSTER_CLI_LOCAL_LOCAL_JOB_H_
#define MUSTER_CLI_LOCAL_LOCAL_JOB_H_

#include "absl/status/status.h"
#include "cli/local/local_cluster.h"
#include "cli/output/console.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// At least as many nodes, and slots on each, as the job has ranks for. `defaulted` has its
// defaults.
void FitToJob(const v1::JobSpec& defaulted, LocalClusterOptions& options);

// Says it on stderr when there are more slots than cores.
void NoteSharedCores(const LocalClusterOptions& options, Console& console);

// Of LocalCluster::Start.
int ExitCodeOfStart(const absl::Status& status);

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOCAL_LOCAL_JOB_H_
