#include "cli/exit_code.h"

namespace muster::cli {

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
