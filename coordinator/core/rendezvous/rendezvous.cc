#include "coordinator/core/rendezvous/rendezvous.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/text/wait_text.h"
#include "common/time/proto_time.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/rendezvous/messages.h"

namespace muster::core {
namespace {

// Longest time without progress of a rank: failure_timeout, but at least this, because launching
// and connecting a large world takes time even if each rank is fast.
constexpr absl::Duration kMinPhaseTimeout = absl::Seconds(60);
// Ranks named in a failure's message.
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

TimerKey PhaseTimer(const Job& job) { return {TimerKey::Kind::kRendezvous, job.status.job_id()}; }

absl::Duration PhaseTimeout(const Job& job) {
  return std::max(FromProto(job.spec().failure_timeout()), kMinPhaseTimeout);
}

absl::Status EndedError(const std::string& job, uint64_t generation) {
  return absl::AbortedError(
      absl::StrCat("generation ", generation, " of job ", job, " has ended or is stopping"));
}

// "memory of node-1, node-2".
std::string MemoryOf(const std::vector<uint32_t>& ranks, const GenerationState& generation) {
  std::set<std::string> nodes;
  for (const uint32_t rank : ranks) {
    nodes.insert(generation.placement(generation.ranks[rank].node_rank).node());
  }
  return absl::StrCat("memory of ", absl::StrJoin(nodes, ", "));
}

// Records which checkpoint the generation resumes from.
void RecordResume(const Agreement& agreement, Job& job) {
  if (!agreement.resume_rank.has_value()) return;
  v1::CheckpointStatus& status = *job.status.mutable_checkpoint();
  status.set_resumed_from(agreement.memory_ranks.empty()
                              ? agreement.resume_path
                              : MemoryOf(agreement.memory_ranks, *job.generation));
  status.set_resumed_step(agreement.resume_step);
  status.set_resumed_job_id(agreement.resume_job_id);
  if (agreement.resume_job_id == job.status.job_id()) return;
  status.set_continued_from(agreement.resume_path);
  status.set_continued_job_id(agreement.resume_job_id);
}

bool HaveAllNodesReported(const GenerationState& generation, const NodeTable& nodes) {
  for (const v1::NodePlacement& placement : generation.record.nodes()) {
    const Node& node = nodes.at(NodeName(placement.node()));
    // Nodes in conflict report nothing until the conflict ends.
    const bool has_reported = node.seen && node.conflict.empty();
    if (!has_reported && node.state != v1::LOST) return false;
  }
  return true;
}

}  // namespace

// ------------------------------------------------------------------------------------------------
// life cycle of a generation

void Rendezvous::Begin(const Job& job) {
  states_.erase(job.id());
  RendezvousState& state = states_
                               .try_emplace(job.id(), job.generation->record.world_size(),
                                            eviction_.memory(), job.status.owner())
                               .first->second;
  state.awaited_since = context_.now.steady;
  if (job.state() == v1::STARTING) ArmPhase(job, v1::STARTED);
}

void Rendezvous::Stop(const Job& job, const std::string& message) {
  context_.timers.Cancel(PhaseTimer(job));
  for (const BarrierTable::Open& open : states_.at(job.id()).barriers.ListOpen()) {
    ReleaseBarrier(job, open.barrier, absl::AbortedError(message));
  }
}

void Rendezvous::End(const Job& job) {
  context_.timers.Cancel({TimerKey::Kind::kWait, job.status.job_id()});
  states_.erase(job.id());
}

// ------------------------------------------------------------------------------------------------
// phases

void Rendezvous::ArmPhase(const Job& job, v1::RankPhase awaited) {
  RendezvousState& state = states_.at(job.id());
  state.awaited = awaited;
  state.awaited_since = context_.now.steady;
  context_.timers.Set(PhaseTimer(job), context_.now.steady + PhaseTimeout(job));
  ArmWaitTimer(job, context_);
}

void Rendezvous::RestartPhase(const Job& job) {
  if (job.state() == v1::STARTING) ArmPhase(job, states_.at(job.id()).awaited);
}

void Rendezvous::RecordJoin(const Job& job, uint32_t rank, const v1::JoinInfo& join) {
  std::optional<v1::JoinInfo>& recorded = states_.at(job.id()).joins[rank];
  if (!recorded.has_value()) recorded = join;
}

std::optional<v1::FirstFailure> Rendezvous::FormWorld(Job& job) {
  RendezvousState& state = states_.at(job.id());
  const GenerationState& generation = *job.generation;
  // Ranks that join get the world, whatever the kind of the job.
  if (state.agreement.has_value() || !generation.EveryRankReached(v1::JOINED)) return std::nullopt;
  state.agreement = Agree(state.joins, job.status.job_id());
  if (!state.agreement.has_value()) return std::nullopt;
  if (const std::optional<Mismatch> mismatch = FindMismatch(state.joins, generation)) {
    v1::FirstFailure failure;
    failure.set_reason(reasons::kFingerprintMismatch);
    failure.set_rank(mismatch->rank);
    failure.set_node(generation.placement(generation.ranks[mismatch->rank].node_rank).node());
    failure.set_message(mismatch->message);
    // A retry on the same nodes would fail again.
    failure.mutable_exit()->mutable_failure()->set_not_retryable(true);
    return failure;
  }
  RecordResume(*state.agreement, job);
  jobs_.MarkJob(job);
  if (job.state() == v1::STARTING) {
    jobs_.AddEvent(job, events::kWorldSent,
                   absl::StrCat("all ranks have joined; ",
                                Describe(*state.agreement, job.status.job_id(), job.highest_step)));
  }
  for (int node_rank = 0; node_rank < generation.record.nodes_size(); ++node_rank) {
    SendWorld(job, node_rank);
  }
  return std::nullopt;
}

bool Rendezvous::AdvancePhases(const Job& job) {
  RendezvousState& state = states_.at(job.id());
  const v1::RankPhase last = job.is_train() ? v1::CONNECTED : v1::STARTED;
  while (job.state() == v1::STARTING && job.generation->EveryRankReached(state.awaited)) {
    context_.stats.Observe("muster_rendezvous_duration_seconds",
                           context_.now.steady - state.awaited_since, {PhaseLabel(state.awaited)});
    if (state.awaited == last) {
      context_.timers.Cancel(PhaseTimer(job));
      return true;
    }
    ArmPhase(job, static_cast<v1::RankPhase>(state.awaited + 1));
  }
  return false;
}

std::optional<v1::FirstFailure> Rendezvous::OnPhaseTimer(const Job& job) {
  const GenerationState& generation = *job.generation;
  const RendezvousState& state = states_.at(job.id());
  std::vector<uint32_t> silent;
  SteadyTime next = SteadyTime::Infinite();
  for (const uint32_t rank : generation.RanksBefore(state.awaited)) {
    const SteadyTime deadline =
        std::max(state.awaited_since, generation.ranks[rank].last_progress) + PhaseTimeout(job);
    if (deadline <= context_.now.steady) {
      silent.push_back(rank);
    } else {
      next = std::min(next, deadline);
    }
  }
  if (silent.empty()) {
    context_.timers.Set(PhaseTimer(job), next);
    return std::nullopt;
  }
  v1::FirstFailure failure;
  failure.set_reason(reasons::kRendezvousTimedOut);
  if (silent.size() == 1) {
    failure.set_rank(silent.front());
    failure.set_node(generation.placement(generation.ranks[silent.front()].node_rank).node());
  }
  // The first open wait is that of the rendezvous.
  OpenWait open = OpenWaits(job, state).front();
  open.named = std::move(silent);
  const v1::Wait wait = SendNotice(job, state, open, /*timed_out=*/true, nodes_, context_);
  failure.set_message(WaitText(wait, /*timed_out=*/true, kShownInMessage));
  return failure;
}

bool Rendezvous::IsReachable(const GenerationState& generation, uint32_t node_rank) const {
  const v1::NodePlacement& placement = generation.placement(node_rank);
  const Node& node = nodes_.at(NodeName(placement.node()));
  return node.session.has_value() && node.record.incarnation() == placement.incarnation();
}

void Rendezvous::SendWorld(const Job& job, uint32_t node_rank) {
  RendezvousState& state = states_.at(job.id());
  const GenerationState& generation = *job.generation;
  if (!state.agreement.has_value() || state.world_sent.count(node_rank) != 0) return;
  if (!IsReachable(generation, node_rank) || !generation.HasLiveRanks(node_rank)) return;
  const auto [first, end] = generation.RanksOf(node_rank);
  if (std::any_of(generation.ranks.begin() + first, generation.ranks.begin() + end,
                  [](const RankState& rank) { return rank.phase == v1::JOINED; })) {
    state.world_sent.insert(node_rank);
    nodes_.Send(nodes_.at(NodeName(generation.placement(node_rank).node())),
                MakeWorld(job, node_rank, *state.agreement));
  }
}

void Rendezvous::OnNewSession(const Job& job, uint32_t node_rank) {
  states_.at(job.id()).world_sent.erase(node_rank);
}

// ------------------------------------------------------------------------------------------------
// keys and barriers

const Job* Rendezvous::FindOpen(const std::string& id, uint64_t number, const Node& node) {
  const Job* const job = jobs_.FindLiving(JobId(id), number, node.name());
  return job == nullptr || job->state() == v1::STOPPING ? nullptr : job;
}

void Rendezvous::PutKey(const Node& node, const v1::PutKey& put) {
  const Job* const job = FindOpen(put.job_id(), put.generation(), node);
  if (job == nullptr) {
    nodes_.Send(node, MakeKeyValue(put.job_id(), put.generation(), put.key(), "",
                                   EndedError(put.job_id(), put.generation())));
    return;
  }
  const size_t bytes = KeyTable::MostBytes(put.key(), put.value());
  (void)eviction_.MakeMemory(job->status.owner(), bytes);  // Put checks it, too
  const absl::StatusOr<std::vector<NodeName>> waiting =
      states_.at(job->id()).keys.Put(put.key(), put.value());
  if (!waiting.ok()) {
    nodes_.Send(node,
                MakeKeyValue(put.job_id(), put.generation(), put.key(), "", waiting.status()));
    return;
  }
  const v1::CoordinatorMessage answer =
      MakeKeyValue(put.job_id(), put.generation(), put.key(), put.value(), absl::OkStatus());
  nodes_.Send(node, answer);
  for (const NodeName& name : *waiting) {
    if (name != node.name()) nodes_.Send(nodes_.at(name), answer);
  }
}

void Rendezvous::GetKey(const Node& node, const v1::GetKey& get) {
  const Job* const job = FindOpen(get.job_id(), get.generation(), node);
  absl::StatusOr<const std::string*> value = EndedError(get.job_id(), get.generation());
  if (job != nullptr) {
    (void)eviction_.MakeMemory(job->status.owner(), KeyTable::MostBytes(get.key(), ""));
    value = states_.at(job->id()).keys.Get(get.key(), node.name());
  }
  if (value.ok() && *value == nullptr) return;  // PutKey answers
  nodes_.Send(node, MakeKeyValue(get.job_id(), get.generation(), get.key(),
                                 value.ok() ? **value : std::string(), value.status()));
}

void Rendezvous::ArriveAtBarrier(const Node& node, const v1::ArriveBarrier& arrive) {
  Job* const job = jobs_.FindLiving(JobId(arrive.job_id()), arrive.generation(), node.name());
  if (job == nullptr || job->state() == v1::STOPPING) {
    nodes_.Send(node, MakeRelease(arrive.job_id(), arrive.generation(), arrive.barrier(),
                                  EndedError(arrive.job_id(), arrive.generation())));
    return;
  }
  GenerationState& generation = *job->generation;
  const auto [first, end] = generation.RanksOf(*generation.NodeRank(node.name()));
  std::vector<uint32_t> ranks;
  for (const uint32_t rank : arrive.ranks()) {
    if (rank >= first && rank < end && !generation.ranks[rank].lost) {
      ranks.push_back(rank);
      generation.ranks[rank].last_seen = context_.now.steady;
    }
  }
  BarrierTable& barriers = states_.at(job->id()).barriers;
  const absl::StatusOr<BarrierTable::Outcome> outcome =
      barriers.Arrive(arrive.barrier(), ranks, context_.now.steady);
  if (!outcome.ok() || outcome->already_released) {
    nodes_.Send(node, MakeRelease(arrive.job_id(), arrive.generation(), arrive.barrier(),
                                  outcome.status()));
    return;
  }
  if (outcome->released.empty()) {
    ArmWaitTimer(*job, context_);
  } else {
    context_.stats.Observe("muster_barrier_wait_seconds", barriers.last_wait());
  }
  for (const v1::BarrierId& barrier : outcome->released) {
    ReleaseBarrier(*job, barrier, absl::OkStatus());
  }
  AbortHopelessBarriers(*job);
}

void Rendezvous::MarkPassed(const Job& job, const v1::BarrierId& passed) {
  for (const v1::BarrierId& barrier : states_.at(job.id()).barriers.MarkPassed(passed)) {
    ReleaseBarrier(job, barrier, absl::OkStatus());
  }
}

void Rendezvous::RecordPassed(Job& job, uint32_t node_rank) const {
  v1::NodePlacement& placement = *job.generation->record.mutable_nodes(node_rank);
  placement.clear_passed_barriers();
  const std::map<std::string, uint64_t>& passed = states_.at(job.id()).barriers.passed();
  if (passed.size() > static_cast<size_t>(limits::kRecordedBarrierGroups)) return;
  v1::PassedBarriersRecord& record = *placement.mutable_passed_barriers();
  for (const auto& [group, sequence] : passed) {
    v1::PassedBarriersRecord::Barrier& barrier = *record.add_barriers();
    barrier.set_group(group);
    barrier.set_sequence(sequence);
  }
}

void Rendezvous::RestorePassed(const Job& job) {
  for (const v1::NodePlacement& placement : job.generation->record.nodes()) {
    for (const auto& passed : placement.passed_barriers().barriers()) {
      v1::BarrierId barrier;
      barrier.set_group(passed.group());
      barrier.set_sequence(passed.sequence());
      MarkPassed(job, barrier);
    }
  }
}

void Rendezvous::AbortHopelessBarriers(const Job& job) {
  if (!job.generation.has_value() || job.generation->clean_exits == 0) return;
  BarrierTable& barriers = states_.at(job.id()).barriers;
  // This is called for each report, so it must not look at all nodes each time.
  if (!barriers.HasOpen()) return;
  const GenerationState& generation = *job.generation;
  std::optional<bool> all_reported;  // not known yet
  for (const BarrierTable::Open& open : barriers.ListOpen()) {
    const std::vector<uint32_t> missing = barriers.Missing(open.barrier);
    const auto ended = std::find_if(missing.begin(), missing.end(), [&](uint32_t rank) {
      if (generation.ranks[rank].phase != v1::EXITED) return false;
      if (generation.placement(generation.ranks[rank].node_rank).has_passed_barriers()) return true;
      // A restarted coordinator does not know which barriers the rank passed before it exited, but
      // a worker may.
      if (!all_reported.has_value()) all_reported = HaveAllNodesReported(generation, nodes_);
      return *all_reported;
    });
    if (ended == missing.end()) continue;
    barriers.Abort(open.barrier);
    ReleaseBarrier(
        job, open.barrier,
        absl::AbortedError(absl::StrCat("rank ", *ended, " ended without arriving at barrier ",
                                        open.barrier.group(), "/", open.barrier.sequence())));
  }
}

void Rendezvous::ReleaseBarrier(const Job& job, const v1::BarrierId& barrier,
                                const absl::Status& status) {
  const GenerationState& generation = *job.generation;
  const v1::CoordinatorMessage message =
      MakeRelease(job.status.job_id(), generation.record.generation(), barrier, status);
  for (int node_rank = 0; node_rank < generation.record.nodes_size(); ++node_rank) {
    if (!IsReachable(generation, node_rank)) continue;
    nodes_.Send(nodes_.at(NodeName(generation.placement(node_rank).node())), message);
  }
}

}  // namespace muster::core
