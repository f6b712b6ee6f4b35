// Follows jobs and arrays until they have started or finished, through restarts of the coordinator.
#ifndef MUSTER_CLI_FOLLOW_FOLLOW_H_
#define MUSTER_CLI_FOLLOW_FOLLOW_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/client.h"
#include "cli/follow/signals.h"
#include "cli/output/console.h"
#include "proto/muster/v1/cluster.pb.h"
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

// Prints only that the coordinator became unreachable or reachable again; with `silent`, nothing.
class QuietObserver : public FollowObserver {
 public:
  explicit QuietObserver(Console& console, bool silent = false)
      : console_(console), silent_(silent) {}
  void OnJob(const v1::Job&) override {}
  void OnCoordinatorAway(const absl::Status&) override {
    if (!silent_) console_.Note("coordinator unreachable; retrying");
  }
  void OnCoordinatorBack() override {
    if (!silent_) console_.Note("coordinator reachable again");
  }

 private:
  Console& console_;
  const bool silent_;
};

struct ArrayResult {
  v1::GetArrayResponse array;
  // That of the first task, by index, that has finished without success; otherwise 0.
  int exit_code = 0;
};

// Follows each task with `options`, whose timeout is that of all tasks together. `on_task` is
// called for each task, by index, once it is in the state that was waited for. Errors are those of
// FollowJob.
absl::StatusOr<ArrayResult> WaitForArray(ClusterClient& client, const v1::GetArrayResponse& array,
                                         const FollowOptions& options, Stopper& stopper,
                                         FollowObserver& observer,
                                         const std::function<void(const v1::Job&)>& on_task);

// Whether the job, as it is `now`, has a checkpoint of at least the step that it had reached when
// the checkpoint was requested. Errors: ABORTED if it will not write the requested one, because it
// could not be written or the training ended or restarted before.
absl::StatusOr<bool> IsCheckpointWritten(const v1::Job& requested, const v1::Job& now);

}  // namespace muster::cli

#endif  // MUSTER_CLI_FOLLOW_FOLLOW_H_
