#include "cli/exit_code.h"

namespace muster::cli {
namespace {

constexpr ExitMeaning kMeanings[] = {
    {kExitSuccess, "Success; for a verb that follows a job, the job succeeded"},
    {kExitFailure, "The job failed without an exit code, or the request was rejected"},
    {kExitUsage, "Invalid command line"},
    {kExitNoInput, "An input file cannot be read"},
    {kExitUnavailable, "The coordinator does not answer"},
    {kExitCannotCreate, "A file or directory cannot be created"},
    {kExitTryAgain, "A limit or time-out was reached; try again later"},
    {kExitNotAllowed, "Permission denied by the coordinator"},
    {kExitBadSpec, "Invalid job spec"},
    {kExitTimeLimit, "The job's time limit or --timeout expired"},
    {kExitInterrupted, "Interrupted, for example with Ctrl-C; the job may still be running"},
};

}  // namespace

absl::Span<const ExitMeaning> ExitMeanings() { return kMeanings; }

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitSuccess;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
      return kExitUnavailable;
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
      return kExitTryAgain;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitNotAllowed;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailure;
  }
}

int ExitCodeOf(const v1::Job& job) {
  if (job.state() == v1::SUCCEEDED) return kExitSuccess;
  if (job.exit_code() >= 1 && job.exit_code() <= 255) return job.exit_code();
  return job.state() == v1::TIMED_OUT ? kExitTimeLimit : kExitFailure;
}

bool IsOver(v1::JobState state) {
  return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED ||
         state == v1::TIMED_OUT;
}

}  // namespace muster::cli
