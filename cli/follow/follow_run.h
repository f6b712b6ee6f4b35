// What `muster run` does once its job is queued: shows its progress and what its ranks print, and
// exits as the job does.
#ifndef MUSTER_CLI_FOLLOW_FOLLOW_RUN_H_
#define MUSTER_CLI_FOLLOW_FOLLOW_RUN_H_

#include "cli/client.h"
#include "cli/context.h"
#include "cli/follow/stopper.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

struct FollowRunOptions {
  bool losses = false;     // in the job that -o json prints
  bool may_detach = true;  // whether the job can go on without its follower
};

// Follows the job to its end, through signals and restarts of the coordinator. What a command's
// ranks print is printed too, where stdout is not kept for the job itself. Stopping `stopper` ends
// the following. Returns the exit status.
int FollowRun(Context& context, ClusterClient& client, const v1::Job& job,
              const FollowRunOptions& options, Stopper& stopper);

}  // namespace muster::cli

#endif  // MUSTER_CLI_FOLLOW_FOLLOW_RUN_H_
