// LifeCycle: stops generations, and continues without ranks that do not end.
//
// A directive to stop is repeated until the ranks have ended, in case it was lost. Ranks that have
// not ended a while after their grace period cannot be killed, or their worker does not act: they
// are given up.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/proto_time.h"
#include "coordinator/core/life_cycle.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/steady_clock.h"

namespace muster::core {
namespace {

constexpr absl::Duration kStopInterval = absl::Seconds(5);
// Time for SIGKILL to take effect, and for the worker to report it.
constexpr absl::Duration kStopMargin = absl::Minutes(1);

std::string NameOf(const GenerationState& generation, const RankState& rank) {
  return absl::StrCat("rank ", rank.rank, " on ", generation.placement(rank.node_rank).node(),
                      rank.pid > 0 ? absl::StrCat(", pid ", rank.pid, ",") : "");
}

// Returns whether all ranks exited with code 0 before the directive to stop reached them.
bool EndedByItself(const GenerationState& generation) {
  return generation.EveryRankExitedCleanly() &&
         std::none_of(generation.ranks.begin(), generation.ranks.end(), [&](const RankState& rank) {
           return generation.RecordOf(rank).exit().stopped_by_worker();
         });
}

}  // namespace

void LifeCycle::Stop(Job& job, Ending ending) {
  job.ending = std::move(ending);
  job.generation->stopping_since = context_.now.steady;
  if (job.state() == v1::RUNNING) {
    job.generation->run_time = context_.now.steady - job.state_since;
  }
  jobs_.AddEvent(job, events::kStopping, job.ending.message);
  jobs_.Transition(job, v1::STOPPING, job.ending.reason, job.ending.message);
  if (job.ending.outcome == v1::FAILED) {
    job.failed_at = context_.now.steady;
    failures_.ArmCauseTimer(job);
  }
  rendezvous_.Stop(job, job.ending.message);
  hangs_.End(job);
  stragglers_.End(job);
  ArmStop(job);
  SyncNodes(job, /*launch=*/false);
  CheckStopped(job);
}

void LifeCycle::StopAndRequeue(Job& job, absl::string_view reason, std::string message) {
  job.failed_at.reset();
  if (job.state() != v1::STOPPING) {
    Stop(job, {v1::QUEUED, std::string(reason), std::move(message),
               FromProto(job.spec().grace_period()), /*abort=*/false});
    return;
  }
  job.ending.outcome = v1::QUEUED;
  job.ending.reason = std::string(reason);
  job.ending.message = message;
  scheduler_.OnStopping(job);
  jobs_.SetReason(job, reason, std::move(message));
}

void LifeCycle::ArmStop(Job& job) {
  job.generation->grace_end =
      std::min(context_.now.steady + job.ending.grace_period, DrainDeadline(job));
  scheduler_.OnStopping(job);
  context_.timers.Set({TimerKey::Kind::kStop, job.status.job_id()},
                      context_.now.steady + kStopInterval);
}

SteadyTime LifeCycle::DrainDeadline(const Job& job) const {
  SteadyTime earliest = SteadyTime::Infinite();
  const GenerationState& generation = *job.generation;
  for (int node_rank = 0; node_rank < generation.record.nodes_size(); ++node_rank) {
    const Node* const node = nodes_.Find(NodeName(generation.placement(node_rank).node()));
    if (node == nullptr || !node->record.has_drain_until()) continue;
    if (!generation.HasLiveRanks(node_rank)) continue;
    earliest = std::min(earliest, FromStored(node->record.drain_until()));
  }
  return std::max(earliest, context_.now.steady);
}

void LifeCycle::ShortenStops(const Node& node) {
  for (const auto& [id, number] : node.PlacedGenerations()) {
    Job& job = jobs_.at(id);
    if (job.state() != v1::STOPPING) continue;
    const SteadyTime deadline = DrainDeadline(job);
    if (job.generation->grace_end <= deadline) continue;
    job.generation->grace_end = deadline;
    scheduler_.OnStopping(job);
    SyncNodes(job, /*launch=*/false);
  }
}

void LifeCycle::SendStop(const Job& job, uint32_t node_rank) {
  const GenerationState& generation = *job.generation;
  const v1::NodePlacement& placement = generation.placement(node_rank);
  const Node& node = nodes_.at(NodeName(placement.node()));
  if (node.record.incarnation() != placement.incarnation()) return;
  if (!generation.HasLiveRanks(node_rank)) return;
  v1::StopGeneration stop;
  stop.set_job_id(job.status.job_id());
  stop.set_generation(generation.record.generation());
  *stop.mutable_grace_period() =
      ToProto(std::max(generation.grace_end - context_.now.steady, absl::ZeroDuration()));
  stop.set_reason(job.status.reason());
  stop.set_message(job.status.message());
  stop.set_abort(job.ending.abort);
  stop.set_leave_in_memory(job.ending.reason == reasons::kGrowing);
  stop.set_dump_stacks(!job.is_train() && job.ending.reason == reasons::kRankHung);
  nodes_.SendStop(node, std::move(stop));
}

void LifeCycle::OnStopTimer(Job& job) {
  if (job.state() != v1::STOPPING) return;
  GenerationState& generation = *job.generation;
  if (context_.now.steady < generation.grace_end + kStopMargin) {
    SyncNodes(job, /*launch=*/false);
  } else {
    for (RankState& rank : generation.ranks) {
      const NodeName node(generation.placement(rank.node_rank).node());
      // The lease of a node that is not connected decides about its ranks.
      if (rank.gone() || nodes_.at(node).state != v1::READY) continue;
      GiveUp(job, rank,
             absl::StrCat(NameOf(generation, rank), " has not ended ",
                          absl::FormatDuration(kStopMargin), " after its grace period"));
    }
  }
  context_.timers.Set({TimerKey::Kind::kStop, job.status.job_id()},
                      context_.now.steady + kStopInterval);
  CheckStopped(job);
}

void LifeCycle::OnUnkillable(Job& job, RankState& rank) {
  std::string why =
      absl::StrCat(NameOf(*job.generation, rank), " has processes that outlive SIGKILL");
  if (job.state() != v1::STOPPING) {
    v1::FirstFailure failure;
    failure.set_reason(reasons::kRankUnkillable);
    failure.set_rank(rank.rank);
    failure.set_node(job.generation->placement(rank.node_rank).node());
    *failure.mutable_slots() = job.generation->RecordOf(rank).slots();
    failure.set_message(why);
    failures_.Add(job, std::move(failure), /*consequence=*/false);
  }
  GiveUp(job, rank, std::move(why));
}

void LifeCycle::GiveUp(Job& job, RankState& rank, std::string why) {
  GenerationState& generation = *job.generation;
  generation.MarkLost(rank);
  v1::RankRecord& record = generation.RecordOf(rank);
  record.set_lost(true);
  record.set_unkillable(true);
  jobs_.MarkPlacement(job, rank.node_rank);
  nodes_.SetUnkillable(NodeName(generation.placement(rank.node_rank).node()),
                       {job.id(), generation.number(), rank.rank}, rank.pid);
  absl::StrAppend(&why, "; no rank will be placed on slot ", absl::StrJoin(record.slots(), ", "),
                  " until it ends");
  context_.Log(absl::StrCat("job ", job.status.job_id(), ": ", why));
  context_.stats.OnUnkillable();
  jobs_.AddEvent(job, events::kRankUnkillable, std::move(why));
}

void LifeCycle::CheckStopped(Job& job) {
  if (job.state() != v1::STOPPING || !job.generation.has_value()) return;
  failures_.Attribute(job, /*final=*/job.generation->NothingLeft());
  if (!job.generation->NothingLeft()) return;

  const std::string id = job.status.job_id();
  context_.timers.Cancel({TimerKey::Kind::kCause, id});
  context_.timers.Cancel({TimerKey::Kind::kStop, id});
  growable_.erase(job.id());
  context_.timers.Cancel({TimerKey::Kind::kTimeLimit, id});
  rendezvous_.End(job);
  failures_.Clear(job);
  if (job.ending.outcome == v1::QUEUED && EndedByItself(*job.generation)) {
    job.ending.outcome = v1::SUCCEEDED;
    job.ending.reason = reasons::kCompleted;
    job.ending.message = reasons::kAllExited;
  }
  const absl::Duration run_time = job.generation->run_time;
  scheduler_.OnEnded(job, SlotsOf(job));
  jobs_.EndGeneration(job);

  const Ending& ending = job.ending;
  switch (ending.outcome) {
    case v1::FAILED:
      Restart(job, run_time);
      break;
    case v1::QUEUED:
      job.state_since = context_.now.steady;
      // So that no other job takes its place.
      job.restarting = ending.reason == reasons::kGrowing;
      if (job.restarting) restarting_.push_back(job.id());
      scheduler_.Add(job);
      jobs_.AddEvent(job, events::kRequeued, ending.message);
      jobs_.Transition(job, v1::QUEUED, ending.reason, ending.message);
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

void LifeCycle::ForgetNewest(const Job& job) {
  if (job.past.empty()) return;
  const auto& [number, record] = *job.past.rbegin();
  v1::ForgetGeneration forget;
  forget.set_job_id(job.status.job_id());
  forget.set_generation(number.value());
  forget.set_job_ended(IsTerminal(job.state()));
  for (const v1::NodePlacement& placement : record.nodes()) {
    const Node* const node = nodes_.Find(NodeName(placement.node()));
    if (node == nullptr || node->leftovers.count({job.id(), number}) != 0) continue;
    nodes_.SendForget(*node, forget);
  }
}

}  // namespace muster::core
