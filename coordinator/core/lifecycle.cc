// A job's way through its states. The table is on job.h.
#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/proto_time.h"
#include "common/wait_text.h"
#include "coordinator/core/core_impl.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/rendezvous/agreement.h"

namespace muster::core {
namespace {

// Launching and connecting a large world takes a while even where every single rank is quick.
constexpr absl::Duration kLeastPhaseTimeout = absl::Seconds(60);
// Ranks that a job's message names.
constexpr size_t kShownInMessage = 10;

const char* PhaseLabel(v1::RankPhase awaited) {
  switch (awaited) {
    case v1::STARTED:
      return "launch";
    case v1::JOINED:
      return "join";
    default:
      return "communicators";
  }
}

}  // namespace

void Core::Impl::Transition(Job& job, v1::JobState to, absl::string_view reason,
                            std::string message) {
  CHECK(IsAllowed(job.state(), to))
      << job.id() << " cannot go from " << v1::JobState_Name(job.state()) << " to "
      << v1::JobState_Name(to);
  v1::Job& proto = *job.record.mutable_job();
  proto.set_state(to);
  proto.set_reason(std::string(reason));
  proto.set_message(std::move(message));
  job.state_since = now_.steady;
  MarkJob(job);
}

void Core::Impl::StopAndRequeue(Job& job, absl::string_view reason, std::string message) {
  job.failed_at.reset();
  if (job.state() == v1::STOPPING) {
    job.record.set_outcome(v1::QUEUED);
    job.record.set_outcome_reason(std::string(reason));
    job.record.set_outcome_message(message);
    job.record.mutable_job()->set_reason(std::string(reason));
    job.record.mutable_job()->set_message(std::move(message));
    MarkJob(job);
    return;
  }
  Stop(job, v1::QUEUED, reason, std::move(message), FromProto(job.job().spec().grace_period()),
       /*abort=*/false);
  CheckStopped(job);
}

// -------------------------------------------------------------------------------------------
// rendezvous and run

void Core::Impl::Advance(Job& job) {
  if (!job.generation.has_value()) return;
  if (job.state() == v1::STOPPING) {
    CheckStopped(job);
    return;
  }
  GenerationState& generation = *job.generation;
  if (!generation.failures.empty()) {
    const v1::FirstFailure& failure = generation.failures.first();
    *job.record.mutable_suspected_failure() = failure;
    Stop(job, v1::FAILED, failure.reason(), failure.message(),
         FromProto(job.job().spec().grace_period()), /*abort=*/true);
    CheckStopped(job);
    return;
  }
  if (generation.displaced.has_value()) {
    StopAndRequeue(job, reasons::kNodeDrained, *generation.displaced);
    return;
  }
  AdvanceRendezvous(job);
  if (job.state() == v1::RUNNING && generation.EveryRankExitedCleanly()) {
    Stop(job, v1::SUCCEEDED, reasons::kCompleted, "every rank exited with code 0",
         absl::ZeroDuration(), /*abort=*/false);
    CheckStopped(job);
  }
}

void Core::Impl::AdvanceRendezvous(Job& job) {
  GenerationState& generation = *job.generation;
  // A rank that has joined is owed the World whatever kind of job it is of.
  if (!generation.agreement.has_value() && generation.EveryRankReached(v1::JOINED)) {
    generation.agreement = Agree(generation);
    if (generation.agreement.has_value() && FailOnMismatch(job)) return;
    if (generation.agreement.has_value()) {
      if (job.state() == v1::STARTING) {
        AddEvent(job, events::kWorldSent,
                 absl::StrCat("every rank has joined; ", Describe(*generation.agreement)));
      }
      for (int node_rank = 0; node_rank < generation.record.nodes_size(); ++node_rank) {
        SyncNode(job, node_rank, /*launch=*/false);
      }
    }
  }
  const v1::RankPhase last = job.is_train() ? v1::CONNECTED : v1::STARTED;
  while (job.state() == v1::STARTING && generation.EveryRankReached(generation.awaited)) {
    stats_.OnRendezvous(PhaseLabel(generation.awaited), now_.steady - generation.awaited_since);
    if (generation.awaited == last) {
      timers_.Cancel({TimerKey::Kind::kRendezvous, job.job().job_id()});
      if (job.failed_at.has_value()) stats_.OnRecovered(now_.steady - *job.failed_at);
      job.failed_at.reset();
      const std::string message =
          job.is_train() ? "every rank is connected" : "every rank has started";
      AddEvent(job, events::kRunning, message);
      Transition(job, v1::RUNNING, reasons::kRunning, message);
    } else {
      ArmRendezvous(job, static_cast<v1::RankPhase>(generation.awaited + 1));
    }
  }
}

bool Core::Impl::FailOnMismatch(Job& job) {
  GenerationState& generation = *job.generation;
  const std::optional<Mismatch> mismatch = FindMismatch(generation);
  if (!mismatch.has_value()) return false;
  v1::FirstFailure failure;
  failure.set_reason(reasons::kFingerprintMismatch);
  failure.set_rank(mismatch->rank);
  failure.set_node(generation.placement(generation.ranks[mismatch->rank].node_rank).node());
  failure.set_message(mismatch->message);
  // The same nodes would differ again.
  failure.mutable_exit()->mutable_failure()->set_not_retryable(true);
  AddFailure(job, std::move(failure), /*consequence=*/false);
  Advance(job);
  return true;
}

void Core::Impl::ArmRendezvous(Job& job, v1::RankPhase awaited) {
  job.generation->awaited = awaited;
  job.generation->awaited_since = now_.steady;
  const absl::Duration timeout =
      std::max(FromProto(job.job().spec().failure_timeout()), kLeastPhaseTimeout);
  timers_.Set({TimerKey::Kind::kRendezvous, job.job().job_id()}, now_.steady + timeout);
  WaitBegins(job);
}

void Core::Impl::OnRendezvousTimeout(Job& job) {
  if (job.state() != v1::STARTING) return;
  const GenerationState& generation = *job.generation;
  // The rendezvous is the first of the waits.
  const v1::Wait wait = SendNotice(job, OpenWaits(job).front(), /*timed_out=*/true);
  const std::vector<uint32_t> missing = generation.RanksBefore(generation.awaited);
  v1::FirstFailure failure;
  failure.set_reason(reasons::kRendezvousTimedOut);
  if (missing.size() == 1) {
    failure.set_rank(missing.front());
    failure.set_node(generation.placement(generation.ranks[missing.front()].node_rank).node());
  }
  failure.set_message(WaitText(wait, /*timed_out=*/true, kShownInMessage));
  AddFailure(job, std::move(failure), /*consequence=*/false);
  Advance(job);
}

void Core::Impl::ArmTimeLimit(const Job& job) {
  if (!job.job().spec().has_time_limit()) return;
  const absl::Time end =
      FromProto(job.job().start_time()) + FromProto(job.job().spec().time_limit());
  timers_.Set({TimerKey::Kind::kTimeLimit, job.job().job_id()}, now_.steady + (end - now_.wall));
}

void Core::Impl::OnTimeLimit(Job& job) {
  const std::string message =
      absl::StrCat("its time limit of ",
                   absl::FormatDuration(FromProto(job.job().spec().time_limit())), " is over");
  if (job.state() == v1::STOPPING) {
    if (job.record.outcome() != v1::FAILED && job.record.outcome() != v1::QUEUED) return;
    job.record.set_outcome(v1::TIMED_OUT);
    job.record.set_outcome_reason(reasons::kTimeLimit);
    job.record.set_outcome_message(message);
    MarkJob(job);
    return;
  }
  Stop(job, v1::TIMED_OUT, reasons::kTimeLimit, message, FromProto(job.job().spec().grace_period()),
       /*abort=*/false);
  CheckStopped(job);
}

// -------------------------------------------------------------------------------------------------------------
// end

void Core::Impl::Stop(Job& job, v1::JobState outcome, absl::string_view reason, std::string message,
                      absl::Duration grace, bool abort) {
  GenerationState& generation = *job.generation;
  job.record.set_outcome(outcome);
  job.record.set_outcome_reason(std::string(reason));
  job.record.set_outcome_message(message);
  *job.record.mutable_stop_grace_period() = ToProto(grace);
  job.record.set_abort_on_stop(abort);
  generation.stopping_since = now_.steady;
  timers_.Cancel({TimerKey::Kind::kRendezvous, job.job().job_id()});
  AddEvent(job, events::kStopping, message);
  Transition(job, v1::STOPPING, reason, std::move(message));
  if (outcome == v1::FAILED) {
    job.failed_at = now_.steady;
    timers_.Set({TimerKey::Kind::kCause, job.job().job_id()}, now_.steady + options_.cause_window);
  }
  for (const BarrierTable::Open& open : generation.barriers.ListOpen()) {
    ReleaseBarrier(job, open.barrier, absl::AbortedError(job.record.outcome_message()));
  }
  for (int node_rank = 0; node_rank < generation.record.nodes_size(); ++node_rank) {
    SyncNode(job, node_rank, /*launch=*/false);
  }
}

void Core::Impl::CheckStopped(Job& job) {
  if (job.state() != v1::STOPPING || !job.generation.has_value()) return;
  Attribute(job, /*final=*/job.generation->NothingLeft());
  if (!job.generation->NothingLeft()) return;

  const std::string id = job.job().job_id();
  timers_.Cancel({TimerKey::Kind::kCause, id});
  timers_.Cancel({TimerKey::Kind::kTimeLimit, id});
  timers_.Cancel({TimerKey::Kind::kWait, id});
  const Generation number(job.generation->record.generation());
  job.generation->record.set_over(true);
  MarkGeneration(job);
  v1::GenerationRecord record = std::move(job.generation->record);
  job.generation.reset();
  active_.erase(job.id());
  for (const v1::NodePlacement& placement : record.nodes()) {
    const Node& node = nodes_.at(NodeName(placement.node()));
    if (node.leftovers.count({job.id(), number}) == 0) SendForget(node, job.id(), number);
  }
  job.past[number] = std::move(record);
  capacity_changed_ = true;

  const v1::JobState outcome = job.record.outcome();
  if (outcome == v1::FAILED || outcome == v1::QUEUED) {
    outcome == v1::FAILED ? Restart(job) : BackToQueue(job);
    return;
  }
  const int exit_code = outcome == v1::SUCCEEDED ? 0 : outcome == v1::TIMED_OUT ? 124 : 1;
  Finish(job, outcome, job.record.outcome_reason(), job.record.outcome_message(), exit_code);
}

void Core::Impl::Restart(Job& job) {
  const RestartVerdict verdict = MayRestart(job);
  job.record.set_failed_at_step(job.record.highest_step());
  if (!verdict.allowed) {
    const v1::FirstFailure& failure = job.job().first_failure();
    // Two lines to be held against each other: nothing is put behind the second.
    const bool differ = failure.reason() == reasons::kFingerprintMismatch;
    Finish(job, v1::FAILED, verdict.reason,
           differ ? failure.message() : absl::StrCat(failure.message(), "; ", verdict.why_not),
           ExitCodeOf(failure));
    return;
  }
  job.record.mutable_job()->set_restarts(job.job().restarts() + 1);
  stats_.OnRestart(job.job().first_failure().reason());
  job.state_since = now_.steady;
  job.restarting = true;
  queue_.Add(job.record);
  MarkJob(job);
}

void Core::Impl::BackToQueue(Job& job) {
  job.state_since = now_.steady;
  queue_.Add(job.record);
  AddEvent(job, events::kRequeued, job.record.outcome_message());
  Transition(job, v1::QUEUED, job.record.outcome_reason(), job.record.outcome_message());
}

void Core::Impl::Finish(Job& job, v1::JobState state, absl::string_view reason, std::string message,
                        int exit_code) {
  queue_.Remove(job.id());
  capacity_changed_ = true;
  v1::Job& proto = *job.record.mutable_job();
  proto.set_exit_code(exit_code);
  *proto.mutable_finish_time() = ToProto(now_.wall);
  finished_.emplace(FromProto(proto.finish_time()), job.id());
  AddEvent(job, events::kFinished, absl::StrCat(v1::JobState_Name(state), ": ", message));
  Transition(job, state, reason, std::move(message));
  stats_.OnFinished(state, std::string(reason));
}

}  // namespace muster::core
