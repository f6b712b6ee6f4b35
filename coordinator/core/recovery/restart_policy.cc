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

// No delay after the first of several failures in a row, so that a single one costs no time.
absl::Duration DelayAfter(uint32_t failures) {
  if (failures < 2) return absl::ZeroDuration();
  return std::min(kMostDelay, absl::Seconds(int64_t{1} << std::min(failures - 2, 16u)));
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
    return {.restart = true, .delay = firm ? absl::ZeroDuration() : DelayAfter(used + 1)};
  }
  if (max == 0) return {};
  return {.why_not = absl::StrCat("no restarts left: ", max, max == 1 ? " restart" : " restarts",
                                  " without a step in between (restart.max: ", max, ")")};
}

std::string NextAttempt(const Job& job) {
  return IsOfProgram(job.status.first_failure())
             ? absl::StrCat("restart ", job.status.restarts_used(), " of ",
                            job.spec().restart().max())
             : absl::StrCat("attempt ", job.failed_attempts + 1, " of ", kMaxFailedAttempts);
}

std::string DelayReason(const Job& job) {
  return IsOfProgram(job.status.first_failure())
             ? absl::StrCat("it failed within ", absl::FormatDuration(kFirmRun),
                            " of its start and without a step")
             : absl::StrCat(job.failed_attempts,
                            " attempts in a row ended with a lost node or a failed launch");
}

std::string NodeToAvoid(const Job& job) {
  const v1::FirstFailure& failure = job.status.first_failure();
  if (!job.status.has_first_failure() || failure.generation() != job.status.generation()) return "";
  const v1::CheckpointStatus& checkpoint = job.status.checkpoint();
  const bool holds_checkpoint =
      checkpoint.step() > 0 && !checkpoint.shared() && checkpoint.node() == failure.node();
  return IsOfProgram(failure) || holds_checkpoint ? "" : failure.node();
}

bool NoteStep(Job& job, uint64_t step) {
  if (step <= job.highest_step) return false;
  job.highest_step = step;
  if (job.status.restarts_used() == 0) return false;
  job.status.set_restarts_used(0);
  return true;
}

}  // namespace muster::core
