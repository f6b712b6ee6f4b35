#include "coordinator/core/life_cycle.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/proto_time.h"
#include "coordinator/core/jobs/first_failure.h"
#include "coordinator/core/jobs/job_lease.h"
#include "coordinator/core/node_environments.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/recovery/restart_policy.h"
#include "coordinator/core/scheduler/explain.h"
#include "coordinator/core/scheduler/placement.h"

namespace muster::core {
namespace {

absl::Duration GraceOf(const Job& job) { return FromProto(job.spec().grace_period()); }

uint32_t CountGpuSlots(const Node& node, const v1::NodePlacement& placement) {
  uint32_t count = 0;
  for (const v1::RankRecord& rank : placement.ranks()) {
    count += std::count_if(rank.slots().begin(), rank.slots().end(),
                           [&node](uint32_t slot) { return node.KindOf(slot) == "gpu"; });
  }
  return count;
}

}  // namespace

// ------------------------------------------------------------------------------------------------
// placement

void LifeCycle::RunQueue() {
  const bool nodes_changed = std::exchange(nodes_version_, nodes_.version()) != nodes_.version();
  if (nodes_changed || scheduler_.HasCapacityChanged()) ArmGrowth();
  // A decision can be followed by another: a job that cannot run may end, a preempted one may have
  // no rank left.
  while (scheduler_.TakeCapacityChange(nodes_)) {
    const auto check = [this](const JobId& id) { return FindUnplaceable(jobs_.at(id)); };
    for (const JobId& id : scheduler_.CheckShapes(check)) jobs_.MarkChanged(jobs_.at(id));
    const Plan& plan =
        scheduler_.Decide([this](const StartRequest& request) { return TryPlace(request); });
    const std::vector<Preemption> preemptions = plan.preemptions;
    for (const Preemption& preemption : preemptions) {
      for (const JobId& victim : preemption.victims) Preempt(jobs_.at(victim), preemption.job);
    }
  }
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
}

void LifeCycle::SettleDependencies() {
  // The end of a job may be the end of those that depend on it, and so on.
  while (jobs_.HasEnded()) {
    for (Admission::Hopeless& hopeless : admission_.SettleDependencies()) {
      Job& job = jobs_.at(hopeless.job);
      if (IsTerminal(job.state())) continue;  // two of its dependencies have failed
      Finish(job, v1::FAILED, reasons::kDependencyFailed, std::move(hopeless.why), /*exit_code=*/1);
    }
  }
}

// See JobQueue::CheckShapes.
std::optional<std::string> LifeCycle::FindUnplaceable(const Job& job) {
  if (scheduler_.SurelyFitsVacant(job.id())) return "";
  std::string reason = UnplaceableReason(job.spec().resources(), nodes_.all());
  if (reason.empty()) return reason;
  const SteadyTime all_known =
      AllKnownAt(nodes_.all(), context_.options.lease, context_.now.steady);
  if (all_known <= context_.now.steady) return reason;
  context_.timers.Set({TimerKey::Kind::kPlacement, ""}, all_known);
  return std::nullopt;
}

StartResult LifeCycle::TryPlace(const StartRequest& request) {
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
    Start(job, std::move(decision.placements), request.overdue);
    scheduler_.Refresh(nodes_);
    return result;
  }
  if (decision.retry_at.has_value()) {
    context_.timers.Set({TimerKey::Kind::kPlacement, ""}, *decision.retry_at);
  }
  if (decision.refusal.empty()) return result;
  result.outcome = StartResult::Outcome::kGone;
  Finish(job, v1::FAILED, reasons::kDeviceShared, std::move(decision.refusal), /*exit_code=*/1);
  return result;
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

void LifeCycle::Start(Job& job, std::vector<v1::NodePlacement> placements, bool overdue) {
  const Generation number = job.NextGeneration();
  v1::GenerationRecord record;
  record.set_job_id(job.status.job_id());
  record.set_generation(number.value());
  std::vector<std::string> names;
  uint32_t world_size = 0;
  uint32_t gpu_slots = 0;
  for (v1::NodePlacement& placement : placements) {
    const Node& node = nodes_.at(NodeName(placement.node()));
    const uint32_t gpus = CountGpuSlots(node, placement);
    names.push_back(placement.node());
    world_size += placement.ranks_size();
    gpu_slots += gpus;
    if (job.spec().resources().exclusive()) {
      const uint32_t idle_gpus = node.UsableSlots("gpu") - gpus;
      const uint32_t idle = node.UsableSlots() - TakenSlots(placement, node, /*exclusive=*/false);
      record.set_idle_gpu_slots(record.idle_gpu_slots() + idle_gpus);
      record.set_idle_cpu_slots(record.idle_cpu_slots() + idle - idle_gpus);
    }
    for (const v1::RankRecord& rank : placement.ranks()) {
      nodes_.Occupy(NodeName(placement.node()), {job.id(), number, rank.rank()},
                    {rank.slots().begin(), rank.slots().end()}, job.spec().resources().exclusive());
    }
    *record.add_nodes() = std::move(placement);
  }
  record.set_world_size(world_size);
  record.set_gpu_slots(gpu_slots);
  record.set_overdue(overdue);
  *record.mutable_job_lease() = ToProto(JobLease(job.spec(), context_.options));

  context_.stats.OnQueueWait(context_.now.steady - job.state_since);
  jobs_.BeginGeneration(job, std::move(record));
  jobs_.histories().BeginGeneration(job, EnvironmentsOf(job.generation->record, nodes_));
  const std::string where =
      absl::StrCat("generation ", number.value(), ": ", world_size,
                   world_size == 1 ? " rank" : " ranks", " on ", absl::StrJoin(names, ", "));
  jobs_.AddEvent(job, events::kPlaced, where);
  jobs_.Transition(job, v1::STARTING, reasons::kRendezvous, where);
  scheduler_.OnStarted(job);
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
                    {rank.slots().begin(), rank.slots().end()}, job.spec().resources().exclusive());
    }
  }
  failures_.Recall(job);
  scheduler_.OnStarted(job);
  ArmTimeLimit(job);
  rendezvous_.Begin(job);
  rendezvous_.RestorePassed(job);
  BeginGrowthWatch(job);
  if (job.state() == v1::STOPPING) ArmStop(job);
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
    BeginGrowthWatch(job);
  }
  if (job.state() == v1::RUNNING && job.generation->EveryRankExitedCleanly()) {
    Stop(job, {v1::SUCCEEDED, reasons::kCompleted, reasons::kAllExited, absl::ZeroDuration(),
               /*abort=*/false});
  }
}

void LifeCycle::SyncNode(Job& job, uint32_t node_rank, bool launch) {
  if (job.state() == v1::STOPPING) return SendStop(job, node_rank);
  if (launch) rendezvous_.SendLaunch(job, node_rank);
  rendezvous_.SendWorld(job, node_rank);
}

void LifeCycle::SyncNodes(Job& job, bool launch) {
  for (int node_rank = 0; node_rank < job.generation->record.nodes_size(); ++node_rank) {
    SyncNode(job, node_rank, launch);
  }
}

void LifeCycle::ArmTimeLimit(const Job& job) {
  const std::optional<SteadyTime> end = job.TimeLimitEnd();
  if (end.has_value()) {
    context_.timers.Set({TimerKey::Kind::kTimeLimit, job.status.job_id()}, *end);
  }
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
  if (key.kind == TimerKey::Kind::kPlacement || key.kind == TimerKey::Kind::kAgeing) {
    scheduler_.OnCapacityChanged();
    return;
  }
  if (key.kind == TimerKey::Kind::kGrowth) return OnGrowthTimer();
  if (key.kind == TimerKey::Kind::kCoolDown) return nodes_.EndCoolDown(NodeName(key.name));
  if (key.kind == TimerKey::Kind::kSelfTest) return nodes_.OnSelfTestTimer(NodeName(key.name));
  if (key.kind == TimerKey::Kind::kLease || key.kind == TimerKey::Kind::kJobLease) {
    const Node* const node = nodes_.Find(NodeName(key.name));
    if (node == nullptr || node->state == v1::LOST) return;
    key.kind == TimerKey::Kind::kLease ? OnLeaseEnd(*node) : OnJobLeaseEnd(*node);
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
      // The cause is the silent node, whose ranks may still run.
      if (fence_.Awaits(job->id())) {
        context_.timers.Set(key, context_.now.steady + context_.options.lease);
        break;
      }
      if (std::optional<v1::FirstFailure> failure = rendezvous_.OnPhaseTimer(*job)) {
        failures_.Add(*job, *std::move(failure), /*consequence=*/false);
        Advance(*job);
      }
      break;
    case TimerKey::Kind::kTimeLimit:
      OnTimeLimit(*job);
      break;
    case TimerKey::Kind::kHang:
      hangs_.OnTimer(*job);
      Advance(*job);
      break;
    case TimerKey::Kind::kStall:
      hangs_.OnStall(*job);
      break;
    case TimerKey::Kind::kWait:
      rendezvous_.OnWaitTimer(*job);
      break;
    case TimerKey::Kind::kStop:
      OnStopTimer(*job);
      break;
    case TimerKey::Kind::kGrowth:
    case TimerKey::Kind::kCoolDown:
    case TimerKey::Kind::kSelfTest:
    case TimerKey::Kind::kLease:
    case TimerKey::Kind::kJobLease:
    case TimerKey::Kind::kRecovery:  // handled by the core
    case TimerKey::Kind::kPlacement:
    case TimerKey::Kind::kAgeing:
    case TimerKey::Kind::kDelay:
    case TimerKey::Kind::kRetention:  // handled at the beginning of the step
      break;
  }
}

// ------------------------------------------------------------------------------------------------
// end

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
        job.generation->grace_end =
            std::min(job.generation->grace_end, context_.now.steady + grace_period);
        scheduler_.OnStopping(job);
        SyncNodes(job, /*launch=*/false);
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
  job.released = context_.now.steady;
  jobs_.AddEvent(job, events::kReleased, DoneBy("released", actor));
  jobs_.Transition(job, v1::QUEUED, reasons::kWaitingForResources,
                   "waiting in the queue for resources");
  admission_.Enter(job);
}

void LifeCycle::RemoveFromQueue(Job& job) {
  admission_.Leave(job);
  job.not_before.reset();
  context_.timers.Cancel({TimerKey::Kind::kDelay, job.status.job_id()});
}

void LifeCycle::Finish(Job& job, v1::JobState state, absl::string_view reason, std::string message,
                       int exit_code) {
  RemoveFromQueue(job);
  jobs_.Finish(job, state, reason, std::move(message), exit_code);
  ForgetNewest(job);
}

// ------------------------------------------------------------------------------------------------
// nodes

void LifeCycle::LoseNode(const NodeName& name, const std::string& why) {
  nodes_.Lose(name, why);
  scheduler_.OnCapacityChanged();  // jobs that waited only for this node need not wait any more
  const Node& node = nodes_.at(name);
  LosePlaced(node, node.PlacedGenerations(), why);
}

void LifeCycle::LosePlaced(const Node& node,
                           const std::vector<std::pair<JobId, Generation>>& generations,
                           const std::string& why) {
  for (const auto& [id, number] : generations) {
    Job& job = jobs_.at(id);
    GenerationState& generation = *job.generation;
    const auto [first, end] = generation.RanksOf(*generation.NodeRank(node.name()));
    failures_.NoteNodeLost(job, node, why);
    for (uint32_t rank = first; rank < end; ++rank) LoseRank(job, generation.ranks[rank]);
    Advance(job);
  }
  AbortHopelessBarriers(node.name());
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
  const NodeName node(generation.placement(rank.node_rank).node());
  generation.MarkLost(rank);
  generation.RecordOf(rank).set_lost(true);
  fence_.Forget({node, job.id(), generation.number()});
  nodes_.Vacate(node, {job.id(), generation.number(), rank.rank});
  jobs_.MarkPlacement(job, rank.node_rank);
}

void LifeCycle::LoseAccusedNodes(const Job& job) {
  // The ranks of a command job may still run there.
  if (!job.is_train() || !job.generation.has_value()) return;
  const std::pair<JobId, Generation> living(job.id(), job.generation->number());
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
    const std::string why = absl::StrCat("its stream broke, and a peer reported losing rank ", rank,
                                         ", which ran on it");
    const Node& node = nodes_.at(name);
    // The ranks of other jobs may still run there: they keep their leases.
    if (node.PlacedGenerations().size() == 1) {
      LoseNode(name, why);
    } else {
      LosePlaced(node, {living}, why);
    }
  }
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
