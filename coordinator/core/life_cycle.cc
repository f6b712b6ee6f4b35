#include "coordinator/core/life_cycle.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/proto_time.h"
#include "coordinator/core/jobs/first_failure.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/scheduler/placement.h"

namespace muster::core {
namespace {

absl::Duration GraceOf(const Job& job) { return FromProto(job.spec().grace_period()); }

}  // namespace

// ------------------------------------------------------------------------------------------------
// placement

void LifeCycle::RunQueue() {
  if (!scheduler_.TakeCapacityChange()) return;
  const JobQueue& queue = scheduler_.queue();
  while (!queue.empty() && TryPlace(jobs_.at(queue.head()))) {
  }
  for (const JobId& id : queue.InOrder()) {
    Job& job = jobs_.at(id);
    if (job.restarting) Requeue(job);
  }
}

// Returns false when the job has to wait.
bool LifeCycle::TryPlace(Job& job) {
  Decision decision =
      Decide(job.spec().resources(), nodes_.all(), context_.options.lease, context_.now.steady);
  if (!decision.placements.empty()) {
    Start(job, std::move(decision.placements));
    return true;
  }
  if (decision.retry_at.has_value()) {
    context_.timers.Set({TimerKey::Kind::kPlacement, ""}, *decision.retry_at);
  }
  if (decision.refusal.empty()) return false;
  Finish(job, v1::FAILED, reasons::kDeviceShared, std::move(decision.refusal), /*exit_code=*/1);
  return true;
}

void LifeCycle::Start(Job& job, std::vector<v1::NodePlacement> placements) {
  const Generation number(job.status.generation() + 1);
  v1::GenerationRecord record;
  record.set_job_id(job.status.job_id());
  record.set_generation(number.value());
  std::vector<std::string> names;
  uint32_t world_size = 0;
  for (v1::NodePlacement& placement : placements) {
    names.push_back(placement.node());
    world_size += placement.ranks_size();
    for (const v1::RankRecord& rank : placement.ranks()) {
      nodes_.Occupy(NodeName(placement.node()), {job.id(), number, rank.rank()},
                    {rank.slots().begin(), rank.slots().end()});
    }
    *record.add_nodes() = std::move(placement);
  }
  record.set_world_size(world_size);

  context_.stats.OnQueueWait(context_.now.steady - job.state_since);
  scheduler_.OnPlaced(job.id());
  jobs_.BeginGeneration(job, std::move(record));
  const std::string where =
      absl::StrCat("generation ", number.value(), ": ", world_size,
                   world_size == 1 ? " rank" : " ranks", " on ", absl::StrJoin(names, ", "));
  jobs_.AddEvent(job, events::kPlaced, where);
  jobs_.Transition(job, v1::STARTING, reasons::kRendezvous, where);
  rendezvous_.Begin(job);
  ArmTimeLimit(job);
  SyncNodes(job, /*launch=*/true);
}

void LifeCycle::Resume(Job& job) {
  const GenerationState& generation = *job.generation;
  for (const v1::NodePlacement& placement : generation.record.nodes()) {
    // Also for nodes whose ranks have all ended: the node may know of barriers that they passed.
    nodes_.Expect(placement);
    for (const v1::RankRecord& rank : placement.ranks()) {
      if (rank.exited() || rank.lost()) continue;
      nodes_.Occupy(NodeName(placement.node()), {job.id(), generation.number(), rank.rank()},
                    {rank.slots().begin(), rank.slots().end()});
    }
  }
  failures_.Recall(job);
  ArmTimeLimit(job);
  rendezvous_.Begin(job);
  if (job.state() == v1::STOPPING && failures_.Earliest(job) != nullptr &&
      !failures_.IsAttributed(job)) {
    failures_.ArmCauseTimer(job);
  }
}

// ------------------------------------------------------------------------------------------------
// rendezvous and run

void LifeCycle::Advance(Job& job) {
  if (!job.generation.has_value()) return;
  if (job.state() == v1::STOPPING) {
    CheckStopped(job);
    return;
  }
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
      context_.stats.OnRecovered(context_.now.steady - *job.failed_at);
    }
    job.failed_at.reset();
    const std::string message =
        job.is_train() ? "all ranks are connected" : "all ranks have started";
    jobs_.AddEvent(job, events::kRunning, message);
    jobs_.Transition(job, v1::RUNNING, reasons::kRunning, message);
    hangs_.Arm(job);
  }
  if (job.state() == v1::RUNNING && job.generation->EveryRankExitedCleanly()) {
    Stop(job, {v1::SUCCEEDED, reasons::kCompleted, "all ranks exited with code 0",
               absl::ZeroDuration(), /*abort=*/false});
  }
}

void LifeCycle::SyncNode(Job& job, uint32_t node_rank, bool launch) {
  if (job.state() != v1::STOPPING) {
    if (launch) rendezvous_.SendLaunch(job, node_rank);
    rendezvous_.SendWorld(job, node_rank);
    return;
  }
  const GenerationState& generation = *job.generation;
  const v1::NodePlacement& placement = generation.placement(node_rank);
  const Node& node = nodes_.at(NodeName(placement.node()));
  if (node.record.incarnation() != placement.incarnation()) return;
  if (!generation.HasLiveRanks(node_rank)) return;
  v1::StopGeneration stop;
  stop.set_job_id(job.status.job_id());
  stop.set_generation(generation.record.generation());
  *stop.mutable_grace_period() = ToProto(job.ending.grace_period);
  stop.set_reason(job.status.reason());
  stop.set_message(job.status.message());
  stop.set_abort(job.ending.abort);
  stop.set_dump_stacks(!job.is_train() && job.ending.reason == reasons::kRankHung);
  nodes_.SendStop(node, std::move(stop));
}

void LifeCycle::SyncNodes(Job& job, bool launch) {
  for (int node_rank = 0; node_rank < job.generation->record.nodes_size(); ++node_rank) {
    SyncNode(job, node_rank, launch);
  }
}

void LifeCycle::ArmTimeLimit(const Job& job) {
  if (!job.spec().has_time_limit()) return;
  const absl::Time end = FromProto(job.status.start_time()) + FromProto(job.spec().time_limit());
  context_.timers.Set({TimerKey::Kind::kTimeLimit, job.status.job_id()},
                      context_.now.steady + (end - context_.now.wall));
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

void LifeCycle::OnTimer(const TimerKey& key) {
  if (key.kind == TimerKey::Kind::kPlacement) {
    scheduler_.OnCapacityChanged();
    return;
  }
  if (key.kind == TimerKey::Kind::kLease) {
    const Node* const node = nodes_.Find(NodeName(key.name));
    if (node == nullptr || node->state == v1::LOST) return;
    const absl::Duration silence =
        absl::Trunc(context_.now.steady - node->last_heard, absl::Milliseconds(100));
    LoseNode(node->name(), absl::StrCat("no heartbeat for ", absl::FormatDuration(silence)));
    return;
  }
  Job* const job = jobs_.Find(JobId(key.name));
  if (job == nullptr) return;
  if (key.kind == TimerKey::Kind::kDelay) {
    OnDelayEnd(*job);
    return;
  }
  if (!job->generation.has_value()) return;
  switch (key.kind) {
    case TimerKey::Kind::kCause:
      failures_.Attribute(*job, /*final=*/true);
      break;
    case TimerKey::Kind::kRendezvous:
      if (job->state() != v1::STARTING) break;
      failures_.Add(*job, rendezvous_.TimeOut(*job), /*consequence=*/false);
      Advance(*job);
      break;
    case TimerKey::Kind::kTimeLimit:
      OnTimeLimit(*job);
      break;
    case TimerKey::Kind::kHang:
      hangs_.OnTimer(*job);
      Advance(*job);
      break;
    case TimerKey::Kind::kWait:
      rendezvous_.OnWaitTimer(*job);
      break;
    case TimerKey::Kind::kLease:
    case TimerKey::Kind::kPlacement:
    case TimerKey::Kind::kDelay:
    case TimerKey::Kind::kRetention:  // handled at the beginning of the step
      break;
  }
}

// ------------------------------------------------------------------------------------------------
// end

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
  SyncNodes(job, /*launch=*/false);
  CheckStopped(job);
}

void LifeCycle::StopAndRequeue(Job& job, absl::string_view reason, std::string message) {
  job.failed_at.reset();
  if (job.state() != v1::STOPPING) {
    Stop(job, {v1::QUEUED, std::string(reason), std::move(message), GraceOf(job),
               /*abort=*/false});
    return;
  }
  job.ending.outcome = v1::QUEUED;
  job.ending.reason = std::string(reason);
  job.ending.message = message;
  jobs_.SetReason(job, reason, std::move(message));
}

void LifeCycle::Cancel(Job& job, std::optional<absl::Duration> grace, const Actor& actor) {
  const std::string message = DoneBy("cancelled", actor);
  const absl::Duration grace_period = grace.value_or(GraceOf(job));
  switch (job.state()) {
    case v1::QUEUED:
    case v1::HELD:
      Finish(job, v1::CANCELLED, reasons::kCancelledByUser, message, /*exit_code=*/1);
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
        jobs_.SetReason(job, reasons::kCancelledByUser, message);
      }
      if (grace.has_value() && grace_period < job.ending.grace_period) {
        job.ending.grace_period = grace_period;
        jobs_.MarkJob(job);
        for (const auto& [name, node_rank] : job.generation->node_ranks) {
          SyncNode(job, node_rank, /*launch=*/false);
        }
      }
      break;
    default:
      break;  // already finished
  }
}

void LifeCycle::Hold(Job& job, const Actor& actor) {
  RemoveFromQueue(job);
  const std::string message = DoneBy("held", actor);
  jobs_.AddEvent(job, events::kHeld, message);
  jobs_.Transition(job, v1::HELD, reasons::kHeldByUser, message);
}

void LifeCycle::Release(Job& job, const Actor& actor) {
  scheduler_.Add(job);
  jobs_.AddEvent(job, events::kReleased, DoneBy("released", actor));
  jobs_.Transition(job, v1::QUEUED, reasons::kWaitingForResources,
                   "waiting in the queue for resources");
}

void LifeCycle::CheckStopped(Job& job) {
  if (job.state() != v1::STOPPING || !job.generation.has_value()) return;
  failures_.Attribute(job, /*final=*/job.generation->NothingLeft());
  if (!job.generation->NothingLeft()) return;

  const std::string id = job.status.job_id();
  context_.timers.Cancel({TimerKey::Kind::kCause, id});
  context_.timers.Cancel({TimerKey::Kind::kTimeLimit, id});
  rendezvous_.End(job);
  failures_.Clear(job);
  const absl::Duration run_time = job.generation->run_time;
  const v1::GenerationRecord& record = jobs_.EndGeneration(job);
  const Generation number(record.generation());
  for (const v1::NodePlacement& placement : record.nodes()) {
    const Node& node = nodes_.at(NodeName(placement.node()));
    if (node.leftovers.count({job.id(), number}) == 0) nodes_.SendForget(node, job.id(), number);
  }
  scheduler_.OnCapacityChanged();

  const Ending& ending = job.ending;
  switch (ending.outcome) {
    case v1::FAILED:
      Restart(job, run_time);
      break;
    case v1::QUEUED:
      job.state_since = context_.now.steady;
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
}

void LifeCycle::RemoveFromQueue(Job& job) {
  scheduler_.Remove(job.id());
  job.not_before.reset();
  context_.timers.Cancel({TimerKey::Kind::kDelay, job.status.job_id()});
}

void LifeCycle::Finish(Job& job, v1::JobState state, absl::string_view reason, std::string message,
                       int exit_code) {
  RemoveFromQueue(job);
  jobs_.Finish(job, state, reason, std::move(message), exit_code);
}

// ------------------------------------------------------------------------------------------------
// nodes

void LifeCycle::LoseNode(const NodeName& name, const std::string& why) {
  nodes_.Lose(name, why);
  scheduler_.OnCapacityChanged();  // jobs that waited only for this node need not wait any more
  const Node& node = nodes_.at(name);
  for (const auto& [id, number] : node.PlacedGenerations()) {
    Job& job = jobs_.at(id);
    GenerationState& generation = *job.generation;
    const auto [first, end] = generation.RanksOf(*generation.NodeRank(name));
    failures_.NoteNodeLost(job, node, why);
    for (uint32_t rank = first; rank < end; ++rank) LoseRank(job, generation.ranks[rank]);
    Advance(job);
  }
  AbortHopelessBarriers(name);
}

void LifeCycle::AbortHopelessBarriers(const NodeName& name) {
  for (const JobId& id : jobs_.active()) {
    const Job& job = jobs_.at(id);
    if (job.generation->NodeRank(name).has_value()) rendezvous_.AbortHopelessBarriers(job);
  }
}

void LifeCycle::LoseRank(Job& job, RankState& rank) {
  if (rank.gone()) return;
  GenerationState& generation = *job.generation;
  generation.MarkLost(rank);
  generation.RecordOf(rank).set_lost(true);
  nodes_.Vacate(NodeName(generation.placement(rank.node_rank).node()),
                {job.id(), generation.number(), rank.rank});
  jobs_.MarkPlacement(job, rank.node_rank);
}

void LifeCycle::LoseAccusedNodes(const Job& job) {
  std::map<NodeName, uint32_t> lost;  // the rank on each node that a peer reported as lost
  for (const uint32_t rank : failures_.AccusedRanks(job)) {
    const GenerationState& generation = *job.generation;
    const NodeName name(generation.placement(generation.ranks[rank].node_rank).node());
    const Node& node = nodes_.at(name);
    // Nodes that have not yet reconnected to a restarted coordinator are also SUSPECT, which is no
    // evidence against them.
    if (node.state == v1::SUSPECT && node.seen) lost.emplace(name, rank);
  }
  for (const auto& [name, rank] : lost) {
    LoseNode(name, absl::StrCat("its stream broke, and a peer reported losing rank ", rank,
                                ", which ran on it"));
  }
}

bool LifeCycle::HasAccusedRank(const Node& node) const {
  for (const auto& [id, number] : node.PlacedGenerations()) {
    const Job* const job = jobs_.FindLiving(id, number.value(), node.name());
    if (job == nullptr) continue;
    const GenerationState& generation = *job->generation;
    const auto [first, end] = generation.RanksOf(*generation.NodeRank(node.name()));
    const std::set<uint32_t> accused = failures_.AccusedRanks(*job);
    const auto found = accused.lower_bound(first);
    if (found != accused.end() && *found < end) return true;
  }
  return false;
}

void LifeCycle::MoveJobsAway(const Node& node, const std::string& why) {
  for (const auto& [id, number] : node.PlacedGenerations()) {
    Job& job = jobs_.at(id);
    // A stopping job leaves the node anyway.
    if (job.state() == v1::STARTING || job.state() == v1::RUNNING) {
      StopAndRequeue(job, reasons::kNodeDrained, why);
    }
  }
}

}  // namespace muster::core
