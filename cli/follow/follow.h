// Follows a job until it has started or finished, through restarts of the coordinator.
#ifndef MUSTER_CLI_FOLLOW_FOLLOW_H_
#define MUSTER_CLI_FOLLOW_FOLLOW_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/client.h"
#include "cli/follow/stopper.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// Receives events while a job is followed, on the thread that called FollowJob.
class FollowObserver {
 public:
  virtual ~FollowObserver() = default;
  virtual void OnJob(const v1::Job& job) = 0;
  // Called once each time the coordinator becomes unreachable.
  virtual void OnCoordinatorAway(const absl::Status& status) = 0;
  virtual void OnCoordinatorBack() = 0;
};

struct FollowOptions {
  // Whether to return as soon as the job is RUNNING; otherwise only when it has finished.
  bool until_running = false;
  // Whether to return as soon as it holds for the job.
  std::function<bool(const v1::Job&)> until = [](const v1::Job&) { return false; };
  absl::Duration timeout = absl::InfiniteDuration();
};

// Returns the full job once it has finished or, with `until_running`, is RUNNING, or `until` holds.
// DEADLINE_EXCEEDED after the timeout, CANCELLED once `stopper` is stopped, and errors of the
// coordinator that are not transient.
absl::StatusOr<v1::Job> FollowJob(ClusterClient& client, const std::string& job_id,
                                  const FollowOptions& options, Stopper& stopper,
                                  FollowObserver& observer);

// Whether the error is transient: the coordinator is unreachable or shutting down.
bool IsTransient(const absl::Status& status);

}  // namespace muster::cli

#endif  // MUSTER_CLI_FOLLOW_FOLLOW_H_
