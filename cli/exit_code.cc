#include "cli/exit_code.h"

namespace muster::cli {

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
