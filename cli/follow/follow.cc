#include "cli/follow/follow.h"

#include <algorithm>
#include <cstdint>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/exit_code.h"
#include "cli/text/job_text.h"
#include "common/status.h"
#include "common/time/now.h"

namespace muster::cli {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);

// Stops `inner` when `outer` is stopped or the timeout has passed.
class TimeLimit {
 public:
  TimeLimit(Stopper& outer, Stopper& inner, absl::Duration timeout)
      : outer_(outer, [&inner] { inner.Stop(); }) {
    if (timeout == absl::InfiniteDuration()) return;
    thread_ = std::thread([this, &inner, timeout] {
      if (ended_.SleepFor(timeout)) inner.Stop();
    });
  }
  ~TimeLimit() {
    ended_.Stop();
    if (thread_.joinable()) thread_.join();
  }

 private:
  Stopper::Registration outer_;
  Stopper ended_;
  std::thread thread_;
};

bool IsReached(const v1::Job& job, const FollowOptions& options) {
  return IsOver(job.state()) || (options.until_running && job.state() == v1::RUNNING) ||
         options.until(job);
}

// Returns the full job once its target state is reached; UNAVAILABLE or another stream error if the
// stream broke before.
absl::StatusOr<v1::Job> FollowOnce(ClusterClient& client, const std::string& job_id,
                                   const FollowOptions& options, Stopper& stopper,
                                   absl::FunctionRef<void(const v1::Job&)> on_job) {
  bool reached = false;
  const absl::Status status = client.WatchJob(job_id, stopper, [&](const v1::Job& job) {
    on_job(job);
    reached = IsReached(job, options);
    return !reached;
  });
  if (reached) return client.GetJob(job_id, &stopper);
  if (!status.ok()) return status;
  return absl::UnavailableError("the coordinator ended the stream before the job was over");
}

}  // namespace

bool IsTransient(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kDeadlineExceeded ||
         // A server that is killed may end its streams with these codes.
         status.code() == absl::StatusCode::kUnknown ||
         status.code() == absl::StatusCode::kCancelled;
}

absl::StatusOr<v1::Job> FollowJob(ClusterClient& client, const std::string& job_id,
                                  const FollowOptions& options, Stopper& stopper,
                                  FollowObserver& observer) {
  Stopper limited;
  const TimeLimit limit(stopper, limited, options.timeout);
  bool away = false;
  absl::Duration pause = kFirstPause;
  const auto on_job = [&](const v1::Job& job) {
    if (away) observer.OnCoordinatorBack();
    away = false;
    pause = kFirstPause;
    observer.OnJob(job);
  };
  while (true) {
    const absl::StatusOr<v1::Job> job = FollowOnce(client, job_id, options, limited, on_job);
    if (job.ok()) return job;
    if (!limited.stopped() && !IsTransient(job.status())) return job;
    if (!limited.stopped() && !away) {
      observer.OnCoordinatorAway(job.status());
      away = true;
    }
    if (!client.Pause(pause, limited)) {
      if (stopper.stopped()) return absl::CancelledError("interrupted");
      return absl::DeadlineExceededError(
          absl::StrCat("not reached within ", absl::FormatDuration(options.timeout)));
    }
    pause = std::min(2 * pause, kLongestPause);
  }
}

absl::StatusOr<ArrayResult> WaitForArray(ClusterClient& client, const v1::GetArrayResponse& array,
                                         const FollowOptions& options, Stopper& stopper,
                                         FollowObserver& observer,
                                         const std::function<void(const v1::Job&)>& on_task) {
  const SteadyTime begin = Now().steady;
  ArrayResult result;
  for (const v1::Job& task : array.tasks()) {
    FollowOptions left = options;
    left.timeout = std::max(options.timeout - (Now().steady - begin), absl::ZeroDuration());
    ASSIGN_OR_RETURN(const v1::Job job, FollowJob(client, task.job_id(), left, stopper, observer));
    if (IsOver(job.state()) && result.exit_code == kExitSuccess) result.exit_code = ExitCodeOf(job);
    on_task(job);
  }
  ASSIGN_OR_RETURN(result.array, client.GetArray(array.array().array_id()));
  return result;
}

absl::StatusOr<bool> IsCheckpointWritten(const v1::Job& requested, const v1::Job& now) {
  const v1::CheckpointStatus& status = now.checkpoint();
  // Without a step, the newest checkpoint is one that the training has yet to write.
  const uint64_t wanted = std::max<uint64_t>(requested.progress().step(), 1);
  if (status.step() >= wanted) return true;
  if (IsOver(now.state())) {
    return absl::AbortedError(absl::StrCat("job ", now.job_id(), " ", StateWord(now.state()),
                                           " without a checkpoint of step ", wanted, " or later"));
  }
  if (now.generation() != requested.generation()) {
    return absl::AbortedError(absl::StrCat("job ", now.job_id(),
                                           " stopped without a checkpoint of step ", wanted,
                                           " or later, and started again"));
  }
  if (status.failures() > requested.checkpoint().failures()) {
    return absl::AbortedError(absl::StrCat("the checkpoint of step ", status.failed_step(),
                                           " cannot be written to ", status.dir(), ": ",
                                           status.failure()));
  }
  return false;
}

}  // namespace muster::cli
