#include "cli/exit_code.h"

namespace muster::cli {
namespace {

constexpr ExitMeaning kMeanings[] = {
    {kSuccess, "All went well; of a verb that follows a job: the job succeeded"},
    {kFailure, "The job failed without a code of its own, or the request was refused"},
    {kUsage, "The command line is wrong"},
    {kNoInput, "A file that was named cannot be read"},
    {kUnavailable, "No coordinator answers"},
    {kCannotCreate, "A file or directory cannot be made"},
    {kTryAgain, "Not now: a bound or a time-out was met; try again"},
    {kNotAllowed, "The coordinator does not allow it"},
    {kBadSpec, "The job's spec is wrong"},
    {kTimeLimit, "A time limit has passed: the job's, or that of --timeout"},
    {kInterrupted, "Interrupted, as with Ctrl-C; the job may go on"},
};

}  // namespace

absl::Span<const ExitMeaning> ExitMeanings() { return kMeanings; }

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kSuccess;
    case absl::StatusCode::kInvalidArgument:
      return kUsage;
    case absl::StatusCode::kUnavailable:
      return kUnavailable;
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
      return kTryAgain;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kNotAllowed;
    case absl::StatusCode::kCancelled:
      return kInterrupted;
    default:
      return kFailure;
  }
}

int ExitCodeOf(const v1::Job& job) {
  if (job.state() == v1::SUCCEEDED) return kSuccess;
  if (job.exit_code() >= 1 && job.exit_code() <= 255) return job.exit_code();
  return job.state() == v1::TIMED_OUT ? kTimeLimit : kFailure;
}

bool IsOver(v1::JobState state) {
  return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED ||
         state == v1::TIMED_OUT;
}

}  // namespace muster::cli
