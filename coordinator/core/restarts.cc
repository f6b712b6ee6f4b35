// LifeCycle: starts jobs again whose generation failed.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/core/jobs/first_failure.h"
#include "coordinator/core/life_cycle.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/recovery/restart_policy.h"
#include "coordinator/core/scheduler/explain.h"

namespace muster::core {

void LifeCycle::Restart(Job& job, absl::Duration run_time) {
  const RestartDecision decision = DecideRestart(job, run_time);
  const v1::FirstFailure& failure = job.status.first_failure();
  if (!decision.restart) {
    // A mismatch message is two lines to compare, so nothing is appended to the second.
    const bool complete =
        decision.why_not.empty() || failure.reason() == reasons::kFingerprintMismatch;
    Finish(job, v1::FAILED, failure.reason(),
           complete ? failure.message() : absl::StrCat(failure.message(), "; ", decision.why_not),
           ExitCodeOf(failure));
    return;
  }
  job.status.set_restarts(job.status.restarts() + 1);
  context_.stats.OnRestart(failure.reason());
  if (decision.delay > absl::ZeroDuration()) {
    Delay(job, decision.delay);
    return;
  }
  job.state_since = context_.now.steady;
  job.restarting = true;
  restarting_.push_back(job.id());
  scheduler_.Add(job);
  jobs_.MarkJob(job);
}

void LifeCycle::Requeue(Job& job) {
  job.restarting = false;
  scheduler_.Replace(job);
  if (job.ending.outcome == v1::QUEUED) return;  // it was to grow, and its message says so
  const v1::FirstFailure& failure = job.status.first_failure();
  std::vector<std::string> blockers;
  for (const v1::WaitedFor& blocker : Blockers(job, scheduler_, nodes_.all(), context_.now)) {
    blockers.push_back(blocker.node().empty()
                           ? blocker.reason()
                           : absl::StrCat(blocker.node(), ": ", blocker.reason()));
    if (blockers.size() == 4) break;
  }
  std::string message =
      absl::StrCat(failure.message(), "; waiting to restart: ", absl::StrJoin(blockers, "; "));
  jobs_.AddEvent(job, events::kRequeued, message);
  if (job.state() == v1::QUEUED) {  // it was delayed
    jobs_.SetReason(job, failure.reason(), std::move(message));
  } else {
    jobs_.Transition(job, v1::QUEUED, failure.reason(), std::move(message));
  }
}

void LifeCycle::Delay(Job& job, absl::Duration delay) {
  job.not_before = context_.now.steady + delay;
  context_.timers.Set({TimerKey::Kind::kDelay, job.status.job_id()}, *job.not_before);
  const v1::FirstFailure& failure = job.status.first_failure();
  std::string message = absl::StrCat(failure.message(), "; ", NextAttempt(job), " follows after ",
                                     absl::FormatDuration(delay));
  jobs_.AddEvent(job, events::kRequeued, message);
  jobs_.Transition(job, v1::QUEUED, failure.reason(), std::move(message));
}

void LifeCycle::OnDelayEnd(Job& job) {
  job.not_before.reset();
  job.restarting = true;
  restarting_.push_back(job.id());
  scheduler_.Add(job);
  jobs_.MarkJob(job);
}

}  // namespace muster::core
