// Follows a submitted job for `muster run`: shows its progress and its ranks' output, and exits
// with its exit code.
#ifndef MUSTER_CLI_FOLLOW_FOLLOW_RUN_H_
#define MUSTER_CLI_FOLLOW_FOLLOW_RUN_H_

#include "cli/client.h"
#include "cli/context.h"
#include "cli/follow/stopper.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

struct FollowRunOptions {
  bool losses = false;     // include losses in the job that -o json prints
  bool may_detach = true;  // whether the job may keep running after this process exits
};

// Follows the job until it has finished, through signals and restarts of the coordinator. Also
// prints the output of a command job's ranks, unless stdout is reserved for the job itself.
// Stopping `stopper` ends the following. Returns the exit code.
int FollowRun(Context& context, ClusterClient& client, const v1::Job& job,
              const FollowRunOptions& options, Stopper& stopper);

}  // namespace muster::cli

#endif  // MUSTER_CLI_FOLLOW_FOLLOW_RUN_H_
