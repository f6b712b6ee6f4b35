#include "coordinator/core/lifecycle/generations.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/time/proto_time.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/scheduler/placement/placement.h"
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

uint32_t CountGpuSlots(const Node& node, const v1::NodePlacement& placement) {
  uint32_t count = 0;
  for (const v1::RankRecord& rank : placement.ranks()) {
    count += std::count_if(rank.slots().begin(), rank.slots().end(),
                           [&node](uint32_t slot) { return node.KindOf(slot) == "gpu"; });
  }
  return count;
}

// The software and hardware that run a generation, for the job's history: one element per node of
// the generation, by node rank, with the GPUs that its ranks use there.
std::vector<v1::NodeEnvironmentRecord> EnvironmentsOf(const v1::GenerationRecord& generation,
                                                      const NodeTable& nodes) {
  std::vector<v1::NodeEnvironmentRecord> environments;
  for (const v1::NodePlacement& placement : generation.nodes()) {
    v1::NodeEnvironmentRecord& environment = environments.emplace_back();
    environment.set_node(placement.node());
    const Node* const node = nodes.Find(NodeName(placement.node()));
    if (node == nullptr) continue;
    environment.set_software_version(node->hello.software_version());
    environment.set_cpu_count(node->hello.cpu_count());
    environment.set_memory_bytes(node->hello.memory_bytes());
    std::set<uint32_t> used;
    for (const v1::RankRecord& rank : placement.ranks()) {
      used.insert(rank.slots().begin(), rank.slots().end());
    }
    for (const v1::Slot& slot : node->hello.slots()) {
      if (!slot.has_device() || used.count(slot.index()) == 0) continue;
      environment.add_devices(slot.device().name());
      environment.set_driver_version(slot.device().driver_version());
    }
  }
  return environments;
}

}  // namespace

// ------------------------------------------------------------------------------------------------
// start

void Generations::Start(Job& job, std::vector<v1::NodePlacement> placements, bool overdue) {
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
    Occupy(job, number, placement);
    *record.add_nodes() = std::move(placement);
  }
  record.set_world_size(world_size);
  record.set_gpu_slots(gpu_slots);
  record.set_overdue(overdue);
  *record.mutable_job_lease() = ToProto(JobLease(job.spec(), context_.options));

  context_.stats.Observe("muster_queue_wait_seconds", context_.now.steady - job.state_since);
  Record(job, std::move(record));
  const std::string where =
      absl::StrCat("generation ", number.value(), ": ", world_size,
                   world_size == 1 ? " rank" : " ranks", " on ", absl::StrJoin(names, ", "));
  jobs_.table.AddEvent(job, events::kPlaced, where);
  jobs_.states.Transition(job, v1::STARTING, reasons::kRendezvous, where);
  scheduler_.OnStarted(job);
  rendezvous_.Begin(job);
  ArmTimeLimit(job);
  for (int node_rank = 0; node_rank < job.generation->record.nodes_size(); ++node_rank) {
    SendLaunch(job, node_rank);
  }
}

void Generations::Record(Job& job, v1::GenerationRecord record) {
  jobs_.states.BeginGeneration(job, std::move(record));
  jobs_.histories.BeginGeneration(job, EnvironmentsOf(job.generation->record, nodes_));
}

void Generations::Resume(Job& job) {
  failures_.Recall(job);
  const GenerationState& generation = *job.generation;
  for (const v1::NodePlacement& placement : generation.record.nodes()) {
    // Includes nodes whose ranks have all ended: they may know of barriers that those ranks passed.
    node_sessions_.Expect(placement);
    Occupy(job, generation.number(), placement);
  }
  scheduler_.OnStarted(job);
  ArmTimeLimit(job);
  rendezvous_.Begin(job);
  rendezvous_.RestorePassed(job);
  if (job.state() != v1::STOPPING) return;
  ArmStop(job);
  if (failures_.Earliest(job) != nullptr && !failures_.IsAttributed(job)) {
    failures_.ArmCauseTimer(job);
  }
}

void Generations::SendLaunch(const Job& job, uint32_t node_rank) const {
  const GenerationState& generation = *job.generation;
  const v1::NodePlacement& placement = generation.placement(node_rank);
  const Node& node = nodes_.at(NodeName(placement.node()));
  if (node.record.incarnation() != placement.incarnation()) return;
  if (!generation.HasLiveRanks(node_rank)) return;
  v1::CoordinatorMessage message;
  v1::Launch& launch = *message.mutable_launch();
  launch.set_term(context_.store.term());
  launch.set_job_id(job.status.job_id());
  launch.set_generation(generation.record.generation());
  *launch.mutable_spec() = job.spec();
  for (const v1::RankRecord& record : placement.ranks()) {
    v1::RankPlacement& rank = *launch.add_ranks();
    rank.set_rank(record.rank());
    rank.set_local_rank(record.local_rank());
    *rank.mutable_slots() = record.slots();
  }
  launch.set_world_size(generation.record.world_size());
  launch.set_node_rank(node_rank);
  launch.set_node_count(generation.record.nodes_size());
  launch.set_restarts(job.status.restarts());
  if (generation.record.has_job_lease()) {
    *launch.mutable_job_lease() = generation.record.job_lease();
  }
  launch.set_owner(job.status.owner());
  secrets_.AddTo(job.status.owner(), job.spec(), launch);
  launch.set_array_id(job.status.array_id());
  launch.set_array_index(job.status.array_index());
  launch.set_array_count(job.status.array_count());
  if (job.status.checkpoint().shared()) {
    launch.set_checkpoint_dir(job.status.checkpoint().dir());
  }
  nodes_.Send(node, std::move(message));
}

void Generations::Occupy(const Job& job, Generation number, const v1::NodePlacement& placement) {
  for (const v1::RankRecord& rank : placement.ranks()) {
    if (rank.exited() || rank.lost()) continue;
    nodes_.Occupy(NodeName(placement.node()), {job.id(), number, rank.rank()},
                  {rank.slots().begin(), rank.slots().end()}, job.spec().resources().exclusive());
  }
}

void Generations::ArmTimeLimit(const Job& job) {
  const std::optional<SteadyTime> end = job.TimeLimitEnd();
  if (end.has_value()) {
    context_.timers.Set({TimerKey::Kind::kTimeLimit, job.status.job_id()}, *end);
  }
}

// ------------------------------------------------------------------------------------------------
// stop

void Generations::Stop(Job& job, Ending ending) {
  job.ending = std::move(ending);
  job.generation->stopping_since = context_.now.steady;
  if (job.state() == v1::RUNNING) {
    job.generation->run_time = context_.now.steady - job.state_since;
  }
  jobs_.table.AddEvent(job, events::kStopping, job.ending.message);
  jobs_.states.Transition(job, v1::STOPPING, job.ending.reason, job.ending.message);
  if (job.ending.outcome == v1::FAILED) {
    job.failed_at = context_.now.steady;
    failures_.ArmCauseTimer(job);
  }
  rendezvous_.Stop(job, job.ending.message);
  hangs_.End(job);
  stragglers_.End(job);
  ArmStop(job);
  SendStops(job);
}

void Generations::Requeue(Job& job, absl::string_view reason, std::string message) {
  job.ending.outcome = v1::QUEUED;
  job.ending.reason = std::string(reason);
  job.ending.message = message;
  scheduler_.OnStopping(job);
  jobs_.states.SetReason(job, reason, std::move(message));
}

void Generations::ArmStop(Job& job) {
  job.generation->grace_end =
      std::min(context_.now.steady + job.ending.grace_period, DrainDeadline(job));
  scheduler_.OnStopping(job);
  context_.timers.Set({TimerKey::Kind::kStop, job.status.job_id()},
                      context_.now.steady + kStopInterval);
}

SteadyTime Generations::DrainDeadline(const Job& job) const {
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

void Generations::Shorten(Job& job, SteadyTime grace_end) {
  job.generation->grace_end = std::min(job.generation->grace_end, grace_end);
  scheduler_.OnStopping(job);
  SendStops(job);
}

void Generations::Shorten(const Node& node) {
  for (const auto& [id, number] : node.ranks.PlacedGenerations()) {
    Job& job = jobs_.table.at(id);
    if (job.state() != v1::STOPPING) continue;
    const SteadyTime deadline = DrainDeadline(job);
    if (deadline < job.generation->grace_end) Shorten(job, deadline);
  }
}

void Generations::SendStops(const Job& job) {
  for (int node_rank = 0; node_rank < job.generation->record.nodes_size(); ++node_rank) {
    SendStop(job, node_rank);
  }
}

void Generations::SendStop(const Job& job, uint32_t node_rank) {
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

void Generations::OnStopTimer(Job& job) {
  GenerationState& generation = *job.generation;
  if (context_.now.steady < generation.grace_end + kStopMargin) {
    SendStops(job);
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
}

void Generations::OnUnkillable(Job& job, RankState& rank) {
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

void Generations::GiveUp(Job& job, RankState& rank, std::string why) {
  GenerationState& generation = *job.generation;
  generation.MarkLost(rank);
  v1::RankRecord& record = generation.RecordOf(rank);
  record.set_lost(true);
  record.set_unkillable(true);
  jobs_.table.MarkPlacement(job, rank.node_rank);
  nodes_.SetUnkillable(NodeName(generation.placement(rank.node_rank).node()),
                       {job.id(), generation.number(), rank.rank}, rank.pid);
  absl::StrAppend(&why, "; no rank will be placed on slot ", absl::StrJoin(record.slots(), ", "),
                  " until it ends");
  context_.Log(absl::StrCat("job ", job.status.job_id(), ": ", why));
  context_.stats.Count("muster_unkillable_ranks_total");
  jobs_.table.AddEvent(job, events::kRankUnkillable, std::move(why));
}

std::optional<absl::Duration> Generations::End(Job& job) {
  failures_.Attribute(job, /*final=*/job.generation->NothingLeft());
  if (!job.generation->NothingLeft()) return std::nullopt;

  const std::string id = job.status.job_id();
  context_.timers.Cancel({TimerKey::Kind::kCause, id});
  context_.timers.Cancel({TimerKey::Kind::kStop, id});
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
  jobs_.states.EndGeneration(job);
  return run_time;
}

}  // namespace muster::core
