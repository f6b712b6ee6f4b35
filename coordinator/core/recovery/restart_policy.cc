#include "coordinator/core/recovery/restart_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

constexpr absl::Duration kMostDelay = absl::Minutes(2);

bool IsOfProgram(const v1::FirstFailure& failure) {
  return failure.reason() != reasons::kNodeLost && failure.reason() != reasons::kLaunchFailed;
}

// No delay after the first failed attempt, so that a single lost node costs no time.
absl::Duration DelayAfter(uint32_t failed_attempts) {
  if (failed_attempts < 2) return absl::ZeroDuration();
  return std::min(kMostDelay, absl::Seconds(int64_t{1} << (failed_attempts - 2)));
}

}  // namespace

RestartDecision DecideRestart(Job& job, absl::Duration run_time) {
  const v1::FirstFailure& failure = job.status.first_failure();
  const bool firm = job.highest_step > job.failed_at_step || run_time >= kFirmRun;
  job.failed_at_step = job.highest_step;
  if (failure.exit().failure().not_retryable()) {
    return {.why_not = "not restarted because the failure would recur"};
  }
  if (firm) job.failed_attempts = 0;
  if (!IsOfProgram(failure)) {
    if (++job.failed_attempts == kMaxFailedAttempts) {
      return {.why_not = absl::StrCat("gave up after ", kMaxFailedAttempts,
                                      " attempts in a row that ended with a lost node or a failed "
                                      "launch within ",
                                      absl::FormatDuration(kFirmRun), " and without a step")};
    }
    return {.restart = true, .delay = DelayAfter(job.failed_attempts)};
  }
  const uint32_t max = job.spec().restart().max();
  const uint32_t used = job.status.restarts_used();
  if (used < max) {
    job.status.set_restarts_used(used + 1);
    return {.restart = true};
  }
  if (max == 0) return {};
  return {.why_not = absl::StrCat("no restarts left: ", max, max == 1 ? " restart" : " restarts",
                                  " without a step in between (restart.max: ", max, ")")};
}

bool NoteStep(Job& job, uint64_t step) {
  if (step <= job.highest_step) return false;
  job.highest_step = step;
  if (job.status.restarts_used() == 0) return false;
  job.status.set_restarts_used(0);
  return true;
}

}  // namespace muster::core
