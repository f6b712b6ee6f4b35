#include "coordinator/core/lifecycle/life_cycle.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

absl::Duration GraceOf(const Job& job) { return FromProto(job.spec().grace_period()); }

}  // namespace

void LifeCycle::Resume(Job& job) {
  generations_.Resume(job);
  growth_.Watch(job);
}

void LifeCycle::Advance(Job& job) {
  if (!job.generation.has_value()) return;
  if (job.state() == v1::STOPPING) return CheckStopped(job);
  if (const v1::FirstFailure* const failure = failures_.Earliest(job)) {
    job.suspected_failure = *failure;
    Stop(job, {v1::FAILED, failure->reason(), failure->message(), GraceOf(job), /*abort=*/true});
    return;
  }
  if (const std::string* const why = failures_.Displaced(job)) {
    StopAndRequeue(job, reasons::kNodeDrained, *why);
    return;
  }
  if (std::optional<v1::FirstFailure> mismatch = rendezvous_.FormWorld(job)) {
    failures_.Add(job, *std::move(mismatch), /*consequence=*/false);
    Advance(job);
    return;
  }
  if (rendezvous_.AdvancePhases(job)) {
    if (job.failed_at.has_value()) {
      context_.stats.Observe("muster_recovery_duration_seconds",
                             context_.now.steady - *job.failed_at);
    }
    job.failed_at.reset();
    const std::string message =
        job.is_train() ? "all ranks are connected" : "all ranks have started";
    jobs_.AddEvent(job, events::kRunning, message);
    states_.Transition(job, v1::RUNNING, reasons::kRunning, message);
    hangs_.Arm(job);
    growth_.Watch(job);
  }
  if (job.state() == v1::RUNNING && job.generation->EveryRankExitedCleanly()) {
    Stop(job, {v1::SUCCEEDED, reasons::kCompleted, reasons::kAllExited, absl::ZeroDuration(),
               /*abort=*/false});
  }
}

void LifeCycle::Stop(Job& job, Ending ending) {
  generations_.Stop(job, std::move(ending));
  CheckStopped(job);
}

void LifeCycle::StopAndRequeue(Job& job, absl::string_view reason, std::string message) {
  job.failed_at.reset();
  if (job.state() == v1::STOPPING) return generations_.Requeue(job, reason, std::move(message));
  Stop(job, {v1::QUEUED, std::string(reason), std::move(message), GraceOf(job), /*abort=*/false});
}

void LifeCycle::CheckStopped(Job& job) {
  const std::optional<absl::Duration> run_time = generations_.End(job);
  if (!run_time.has_value()) return;
  growth_.Forget(job);
  queueing_.Conclude(job, *run_time);
}

void LifeCycle::Cancel(Job& job, std::optional<absl::Duration> grace, const Actor& actor) {
  const std::string message = DoneBy("cancelled", actor);
  const absl::Duration grace_period = grace.value_or(GraceOf(job));
  switch (job.state()) {
    case v1::QUEUED:
    case v1::HELD:
      queueing_.Finish(job, v1::CANCELLED, reasons::kCancelledByUser, message, /*exit_code=*/1);
      break;
    case v1::STARTING:
    case v1::RUNNING:
      Stop(job, {v1::CANCELLED, reasons::kCancelledByUser, message, grace_period,
                 /*abort=*/false});
      break;
    case v1::STOPPING:
      if (job.ending.outcome == v1::FAILED || job.ending.outcome == v1::QUEUED) {
        job.ending.outcome = v1::CANCELLED;
        job.ending.reason = reasons::kCancelledByUser;
        job.ending.message = message;
        states_.SetReason(job, reasons::kCancelledByUser, message);
      }
      if (grace.has_value() && grace_period < job.ending.grace_period) {
        job.ending.grace_period = grace_period;
        jobs_.MarkJob(job);
        generations_.Shorten(job, context_.now.steady + grace_period);
      }
      break;
    default:
      break;  // already finished
  }
}

void LifeCycle::MoveJobsAway(const Node& node, const std::string& why) {
  for (const auto& [id, number] : node.ranks.PlacedGenerations()) {
    Job& job = jobs_.at(id);
    // A stopping job leaves the node anyway.
    if (job.state() == v1::STARTING || job.state() == v1::RUNNING) {
      StopAndRequeue(job, reasons::kNodeDrained, why);
    }
  }
}

void LifeCycle::RunQueue() {
  growth_.OnDecision();
  // One decision may make another one due: an unplaceable job ends, or a preempted one has no
  // ranks.
  while (const std::optional<std::vector<Preemption>> preemptions = queueing_.PlaceQueued()) {
    for (const Preemption& preemption : *preemptions) {
      for (const JobId& victim : preemption.victims) Preempt(jobs_.at(victim), preemption.job);
    }
  }
  queueing_.FinishPlacement();
}

void LifeCycle::Preempt(Job& job, const JobId& by) {
  if (job.state() != v1::STARTING && job.state() != v1::RUNNING) return;
  const Job& other = jobs_.at(by);
  std::string message = absl::StrCat("preempted by job ", by.value(), " of class ",
                                     NameOf(ClassOf(other.spec().priority_class())));
  job.preempted = true;
  job.status.set_preemptions(job.status.preemptions() + 1);
  jobs_.AddEvent(job, events::kPreempted, message);
  StopAndRequeue(job, reasons::kPreempted, std::move(message));
}

// ------------------------------------------------------------------------------------------------
// timers

void LifeCycle::OnPhaseTimer(Job& job) {
  if (std::optional<v1::FirstFailure> failure = rendezvous_.OnPhaseTimer(job)) {
    failures_.Add(job, *std::move(failure), /*consequence=*/false);
    Advance(job);
  }
}

void LifeCycle::OnStopTimer(Job& job) {
  if (job.state() != v1::STOPPING) return;
  generations_.OnStopTimer(job);
  CheckStopped(job);
}

void LifeCycle::OnTimeLimit(Job& job) {
  const std::string message =
      absl::StrCat("the time limit of ", absl::FormatDuration(FromProto(job.spec().time_limit())),
                   " has expired");
  if (job.state() == v1::STOPPING) {
    if (job.ending.outcome != v1::FAILED && job.ending.outcome != v1::QUEUED) return;
    job.ending.outcome = v1::TIMED_OUT;
    job.ending.reason = reasons::kTimeLimit;
    job.ending.message = message;
    jobs_.MarkJob(job);
    return;
  }
  Stop(job, {v1::TIMED_OUT, reasons::kTimeLimit, message, GraceOf(job), /*abort=*/false});
}

void LifeCycle::OnGrowthTimer() {
  if (std::optional<Growth::Candidate> candidate = growth_.OnTimer()) {
    StopAndRequeue(jobs_.at(candidate->job), reasons::kGrowing, std::move(candidate->message));
  }
}

}  // namespace muster::core
