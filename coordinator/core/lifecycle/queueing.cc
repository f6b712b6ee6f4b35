#include "coordinator/core/lifecycle/queueing.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/core/jobs/first_failure.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/recovery/restart_policy.h"
#include "coordinator/core/scheduler/explain.h"
#include "coordinator/core/scheduler/placement/placement.h"

namespace muster::core {
namespace {

// Jobs whose reason not to fit is announced in one turn.
constexpr size_t kReasonsPerTurn = 1024;

// Sets the reason unless the job, of a store that was just read, has it already.
void SetReason(Job& job, absl::string_view reason, std::string message, JobStates& states) {
  if (job.status.reason() == reason && job.status.message() == message) return;
  states.SetReason(job, reason, std::move(message));
}

std::string LimitText(const Job& job) {
  return absl::StrCat("array ", job.status.array_id(), " runs at most ", job.array_concurrency,
                      job.array_concurrency == 1 ? " task" : " tasks", " at the same time");
}

}  // namespace

void Queueing::Enter(Job& job) {
  if (!job.after.empty()) {
    SetReason(job, reasons::kDependency, DependencyText(job.after), states_);
    return;
  }
  if (!jobs_.arrays().TakePlace(job)) {
    SetReason(job, reasons::kArrayLimit, LimitText(job), states_);
    return;
  }
  if (job.status.reason() == reasons::kDependency || job.status.reason() == reasons::kArrayLimit) {
    SetReason(job, reasons::kWaitingForResources, "waiting in the queue for resources", states_);
  }
  scheduler_.Add(job);
}

void Queueing::Hold(Job& job, const Actor& actor) {
  Leave(job);
  const std::string message = DoneBy("held", actor);
  jobs_.AddEvent(job, events::kHeld, message);
  states_.Transition(job, v1::HELD, reasons::kHeldByUser, message);
}

void Queueing::Release(Job& job, const Actor& actor) {
  job.released = context_.now.steady;
  jobs_.AddEvent(job, events::kReleased, DoneBy("released", actor));
  states_.Transition(job, v1::QUEUED, reasons::kWaitingForResources,
                     "waiting in the queue for resources");
  Enter(job);
}

void Queueing::Leave(Job& job) {
  scheduler_.Remove(job);
  const std::optional<JobId> next = jobs_.arrays().Release(job);
  if (next.has_value()) Enter(jobs_.at(*next));
  job.not_before.reset();
  context_.timers.Cancel({TimerKey::Kind::kDelay, job.status.job_id()});
}

void Queueing::Finish(Job& job, v1::JobState state, absl::string_view reason, std::string message,
                      int exit_code) {
  Leave(job);
  states_.Finish(job, state, reason, std::move(message), exit_code);
  ForgetNewest(job);
}

// The end of a job may be the end of those that depend on it, and so on.
void Queueing::SettleDependencies() {
  while (states_.HasEnded()) {
    std::vector<std::pair<JobId, std::string>> hopeless;
    for (const Ended& ended : states_.TakeEnded()) {
      for (const JobId& id : states_.dependents().Take(ended.id)) {
        Job& job = jobs_.at(id);
        std::string why = Settle(ended, job.after);
        jobs_.MarkJob(job);
        if (!why.empty()) {
          hopeless.emplace_back(id, std::move(why));
        } else if (job.state() == v1::QUEUED) {
          Enter(job);
        }
      }
    }
    for (auto& [id, why] : hopeless) {
      Job& job = jobs_.at(id);
      if (IsTerminal(job.state())) continue;  // two of its dependencies have failed
      Finish(job, v1::FAILED, reasons::kDependencyFailed, std::move(why), /*exit_code=*/1);
    }
  }
}

void Queueing::Conclude(Job& job, absl::Duration run_time) {
  const Ending& ending = job.ending;
  switch (ending.outcome) {
    case v1::FAILED:
      Restart(job, run_time);
      break;
    case v1::QUEUED:
      job.state_since = context_.now.steady;
      // A growing job is placed in this step, before another job takes its nodes.
      job.restarting = ending.reason == reasons::kGrowing;
      if (job.restarting) restarting_.push_back(job.id());
      scheduler_.Add(job);
      jobs_.AddEvent(job, events::kRequeued, ending.message);
      states_.Transition(job, v1::QUEUED, ending.reason, ending.message);
      break;
    default: {
      const int exit_code = ending.outcome == v1::SUCCEEDED   ? 0
                            : ending.outcome == v1::TIMED_OUT ? 124
                                                              : 1;
      Finish(job, ending.outcome, ending.reason, ending.message, exit_code);
    }
  }
  if (!IsTerminal(job.state())) ForgetNewest(job);
}

void Queueing::Restart(Job& job, absl::Duration run_time) {
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
  context_.stats.Count("muster_job_restarts_total", {failure.reason()});
  if (decision.delay > absl::ZeroDuration()) {
    Delay(job, decision.delay);
    return;
  }
  job.state_since = context_.now.steady;
  RestartNow(job);
}

void Queueing::Delay(Job& job, absl::Duration delay) {
  job.not_before = context_.now.steady + delay;
  context_.timers.Set({TimerKey::Kind::kDelay, job.status.job_id()}, *job.not_before);
  const v1::FirstFailure& failure = job.status.first_failure();
  std::string message = absl::StrCat(failure.message(), "; ", NextAttempt(job), " follows after ",
                                     absl::FormatDuration(delay));
  jobs_.AddEvent(job, events::kRequeued, message);
  states_.Transition(job, v1::QUEUED, failure.reason(), std::move(message));
}

void Queueing::OnDelayEnd(Job& job) {
  job.not_before.reset();
  RestartNow(job);
}

void Queueing::RestartNow(Job& job) {
  job.restarting = true;
  restarting_.push_back(job.id());
  scheduler_.Add(job);
  jobs_.MarkJob(job);
}

void Queueing::Requeue(Job& job) {
  job.restarting = false;
  scheduler_.Replace(job);
  if (job.ending.outcome == v1::QUEUED) return;  // it stopped to grow, as its message says
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
    states_.SetReason(job, failure.reason(), std::move(message));
  } else {
    states_.Transition(job, v1::QUEUED, failure.reason(), std::move(message));
  }
}

void Queueing::ForgetNewest(const Job& job) {
  if (job.past.empty()) return;
  const auto& [number, record] = *job.past.rbegin();
  v1::ForgetGeneration forget;
  forget.set_job_id(job.status.job_id());
  forget.set_generation(number.value());
  forget.set_job_ended(IsTerminal(job.state()));
  for (const v1::NodePlacement& placement : record.nodes()) {
    const Node* const node = nodes_.Find(NodeName(placement.node()));
    if (node == nullptr || !node->ranks.LeftoversOf(job.id(), number).empty()) continue;
    nodes_.SendForget(*node, forget);
  }
}

// ------------------------------------------------------------------------------------------------
// placement

std::optional<std::vector<Preemption>> Queueing::PlaceQueued() {
  if (!scheduler_.TakeCapacityChange(nodes_)) return std::nullopt;
  std::optional<SteadyTime> all_known;
  const auto check = [&](const JobId& id) { return FindUnplaceable(jobs_.at(id), all_known); };
  const std::vector<JobId> changed = scheduler_.CheckShapes(check);
  changed_reasons_.insert(changed_reasons_.end(), changed.begin(), changed.end());
  return scheduler_.Decide([this](const StartRequest& request) { return TryPlace(request); })
      .preemptions;
}

void Queueing::FinishPlacement() {
  const TimerKey ageing{TimerKey::Kind::kAgeing, ""};
  const SteadyTime next = scheduler_.plan().next_overdue;
  if (next < SteadyTime::Infinite()) {
    context_.timers.Set(ageing, next);
  } else {
    context_.timers.Cancel(ageing);
  }
  for (const JobId& id : std::exchange(restarting_, {})) {
    Job* const job = jobs_.Find(id);
    if (job != nullptr && job->restarting) Requeue(*job);
  }
  for (size_t i = 0; i < kReasonsPerTurn && !changed_reasons_.empty(); ++i) {
    const Job* const job = jobs_.Find(changed_reasons_.front());
    if (job != nullptr) jobs_.MarkChanged(*job);
    changed_reasons_.pop_front();
  }
  if (!changed_reasons_.empty()) {
    context_.timers.Set({TimerKey::Kind::kReasons, ""}, context_.now.steady);
  }
}

std::optional<std::string> Queueing::FindUnplaceable(const Job& job,
                                                     std::optional<SteadyTime>& all_known) {
  if (scheduler_.SurelyFitsVacant(job.id())) return "";
  if (!all_known.has_value()) {
    all_known = AllKnownAt(nodes_.all(), context_.options.lease, context_.now.steady);
  }
  if (*all_known <= context_.now.steady) {
    return UnplaceableReason(job.spec().resources(), nodes_.all());
  }
  context_.timers.Set({TimerKey::Kind::kPlacement, ""}, *all_known);
  return std::nullopt;
}

StartResult Queueing::TryPlace(const StartRequest& request) {
  Job& job = jobs_.at(request.job);
  StartResult result;
  Decision decision;
  if (request.narrowed) {
    decision.placements = Place(request.resources, nodes_.all(), Offers::kNow,
                                request.resources.share_device(), NodeToAvoid(job));
  } else {
    decision = Decide(request.resources, nodes_.all(), context_.options.lease, context_.now.steady,
                      NodeToAvoid(job));
  }
  if (!decision.placements.empty()) {
    result.outcome = StartResult::Outcome::kStarted;
    for (const v1::NodePlacement& placement : decision.placements) {
      const NodeName name(placement.node());
      const bool exclusive = request.resources.exclusive();
      result.slots.emplace_back(name, TakenSlots(placement, nodes_.at(name), exclusive));
    }
    generations_.Start(job, std::move(decision.placements), request.overdue);
    scheduler_.Refresh(nodes_);
    return result;
  }
  if (decision.retry_at.has_value()) {
    context_.timers.Set({TimerKey::Kind::kPlacement, ""}, *decision.retry_at);
  }
  if (decision.refusal.empty()) return result;
  result.outcome = StartResult::Outcome::kGone;
  Finish(job, v1::FAILED, reasons::kDeviceShared, std::move(decision.refusal),
         /*exit_code=*/1);
  return result;
}

}  // namespace muster::core
