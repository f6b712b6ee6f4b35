// Stays with a job until it is where somebody waits for it to be, through restarts of the
// coordinator.
#ifndef MUSTER_CLI_FOLLOW_FOLLOW_H_
#define MUSTER_CLI_FOLLOW_FOLLOW_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/client.h"
#include "cli/follow/stopper.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// What happens meanwhile. Called on the thread that follows.
class FollowObserver {
 public:
  virtual ~FollowObserver() = default;
  virtual void OnJob(const v1::Job& job) = 0;
  // Once per absence.
  virtual void OnCoordinatorAway(const absl::Status& status) = 0;
  virtual void OnCoordinatorBack() = 0;
};

struct FollowOptions {
  // Also when RUNNING has been reached; otherwise only when the job is over.
  bool until_running = false;
  absl::Duration timeout = absl::InfiniteDuration();
};

// The job as it then is, in full; when not over and not `until_running`, never. DEADLINE_EXCEEDED
// after the time-out, CANCELLED once `stopper` is stopped, and whatever the coordinator answers
// that repeating does not help.
absl::StatusOr<v1::Job> FollowJob(ClusterClient& client, const std::string& job_id,
                                  const FollowOptions& options, Stopper& stopper,
                                  FollowObserver& observer);

// Whether an error may pass by itself: the coordinator is away or on its way out.
bool IsPassing(const absl::Status& status);

}  // namespace muster::cli

#endif  // MUSTER_CLI_FOLLOW_FOLLOW_H_
