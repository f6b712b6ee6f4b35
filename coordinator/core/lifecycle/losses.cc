#include "coordinator/core/lifecycle/losses.h"

#include <algorithm>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/reasons.h"
#include "spec/cut_off.h"

namespace muster::core {
namespace {

std::string SilenceOf(const Node& node, SteadyTime now) {
  return absl::StrCat("no heartbeat for ", absl::FormatDuration(absl::Trunc(
                                               now - node.last_heard, absl::Milliseconds(100))));
}

}  // namespace

void Losses::LoseNode(const NodeName& name, const std::string& why) {
  node_sessions_.Lose(name, why);
  scheduler_.OnCapacityChanged();  // jobs that waited only for this node need not wait any more
  const Node& node = nodes_.at(name);
  LosePlaced(node, node.ranks.PlacedGenerations(), why);
}

void Losses::LosePlaced(const Node& node,
                        const std::vector<std::pair<JobId, Generation>>& generations,
                        const std::string& why) {
  for (const auto& [id, number] : generations) {
    Job& job = jobs_.at(id);
    GenerationState& generation = *job.generation;
    const auto [first, end] = generation.RanksOf(*generation.NodeRank(node.name()));
    failures_.NoteNodeLost(job, node, why);
    for (uint32_t rank = first; rank < end; ++rank) LoseRank(job, generation.ranks[rank]);
    life_cycle_.Advance(job);
  }
  AbortHopelessBarriers(node.name());
}

void Losses::AbortHopelessBarriers(const NodeName& name) {
  for (const JobId& id : jobs_.ActiveOn(name)) rendezvous_.AbortHopelessBarriers(jobs_.at(id));
}

void Losses::LoseRank(Job& job, RankState& rank) {
  if (rank.gone()) return;
  GenerationState& generation = *job.generation;
  const NodeName node(generation.placement(rank.node_rank).node());
  generation.MarkLost(rank);
  generation.RecordOf(rank).set_lost(true);
  fence_.Forget({node, job.id(), generation.number()});
  nodes_.Vacate(node, {job.id(), generation.number(), rank.rank});
  jobs_.MarkPlacement(job, rank.node_rank);
}

void Losses::LoseAccusedNodes(const Job& job) {
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
    if (node.ranks.PlacedGenerations().size() == 1) {
      LoseNode(name, why);
    } else {
      LosePlaced(node, {living}, why);
    }
  }
}

// ------------------------------------------------------------------------------------------------
// leases

const Node* Losses::FindLeased(const NodeName& name) const {
  const Node* const node = nodes_.Find(name);
  return !context_.leases_end || node == nullptr || node->state == v1::LOST ? nullptr : node;
}

void Losses::OnLeaseEnd(const NodeName& name) {
  const Node* const found = FindLeased(name);
  if (found == nullptr) return;
  const Node& node = *found;
  const std::string why = SilenceOf(node, context_.now.steady);
  if (node.ranks.PlacedGenerations().empty() && jobs_.ActiveOn(node.name()).empty()) {
    return LoseNode(node.name(), why);
  }
  if (node.session.has_value()) {
    AddSuspectEvents(node, absl::StrCat("node ", node.record.name(), " has sent ", why));
    node_sessions_.Reject(node.name(), absl::UnavailableError(why));
  }
  OnJobLeaseEnd(name);
}

void Losses::OnJobLeaseEnd(const NodeName& name) {
  const Node* const found = FindLeased(name);
  if (found == nullptr) return;
  const Node& node = *found;
  const std::string why = SilenceOf(node, context_.now.steady);
  std::vector<std::pair<JobId, Generation>> lost;
  bool waits = false;
  SteadyTime next = fence_.NextEnd(node.name());
  for (const auto& placed : node.ranks.PlacedGenerations()) {
    const Job& job = jobs_.at(placed.first);
    if (JobLeaseEnd(node, job) > context_.now.steady) continue;
    if (HaveEnded(node, job)) {
      lost.push_back(placed);
    } else {
      waits = true;
    }
  }
  // A node whose ranks have all ended keeps the leases of their jobs as well.
  for (const JobId& id : jobs_.ActiveOn(node.name())) {
    const SteadyTime end = JobLeaseEnd(node, jobs_.at(id));
    if (end > context_.now.steady) next = std::min(next, end);
  }
  if (next < SteadyTime::Infinite()) {
    context_.timers.Set({TimerKey::Kind::kJobLease, node.record.name()}, next);
  }
  if (waits || next < SteadyTime::Infinite()) {
    LosePlaced(node, lost, why);
  } else {
    LoseNode(node.name(), why);
  }
}

bool Losses::HaveEnded(const Node& node, const Job& job) {
  if (job.is_train()) return true;  // publishes only under its generation
  const GenerationState& generation = *job.generation;
  const Fence::Ranks ranks{node.name(), job.id(), generation.number()};
  const bool is_new = !fence_.Awaits(ranks);
  std::string confirmation;
  if (generation.placement(*generation.NodeRank(node.name())).unconfirmed()) {
    confirmation =
        "has not reconnected since the coordinator moved to another machine or address, so its "
        "ranks may still run";
  } else if (spec::ContinuesWhenCutOff(job.spec())) {
    confirmation = "is silent, and its ranks may still run (on_cut_off: continue)";
  }
  if (!confirmation.empty()) {
    fence_.AwaitConfirmation(ranks, confirmation);
  } else if (fence_.HaveEnded(ranks, LeaseOf(job, context_.options))) {
    return true;
  }
  if (is_new) {
    jobs_.AddEvent(jobs_.at(job.id()), events::kNodeSilent,
                   absl::StrCat("node ", node.record.name(), " has sent ",
                                SilenceOf(node, context_.now.steady),
                                "; the job waits for the end of its ranks there: muster why ",
                                job.id().value()));
  }
  return false;
}

SteadyTime Losses::JobLeaseEnd(const Node& node, const Job& job) const {
  return node.lease_start + LeaseOf(job, context_.options);
}

void Losses::OnBansKept(const NodeName& member, const v1::BansKept& kept) {
  for (const NodeName& name : fence_.OnBansKept(member, kept)) {
    const Node* const node = nodes_.Find(name);
    if (node != nullptr && node->state == v1::SUSPECT) OnJobLeaseEnd(name);
  }
}

void Losses::OnPhaseTimer(Job& job) {
  if (job.state() != v1::STARTING) return;
  // The cause is the silent node, whose ranks may still run.
  if (fence_.Awaits(job.id())) {
    context_.timers.Set({TimerKey::Kind::kRendezvous, job.status.job_id()},
                        context_.now.steady + context_.options.lease);
    return;
  }
  life_cycle_.OnPhaseTimer(job);
}

void Losses::ExpectReports() {
  for (const JobId& id : jobs_.active()) {
    Job& job = jobs_.at(id);
    if (job.is_train()) continue;
    GenerationState& generation = *job.generation;
    for (int node_rank = 0; node_rank < generation.record.nodes_size(); ++node_rank) {
      v1::NodePlacement& placement = *generation.record.mutable_nodes(node_rank);
      if (nodes_.at(NodeName(placement.node())).seen) continue;
      placement.set_unconfirmed(true);
      jobs_.MarkPlacement(job, node_rank);
    }
  }
}

void Losses::OnReported(const NodeName& name) {
  for (const auto& [id, number] : nodes_.at(name).ranks.PlacedGenerations()) {
    Job& job = jobs_.at(id);
    const uint32_t node_rank = *job.generation->NodeRank(name);
    v1::NodePlacement& placement = *job.generation->record.mutable_nodes(node_rank);
    if (!placement.unconfirmed()) continue;
    placement.clear_unconfirmed();
    jobs_.MarkPlacement(job, node_rank);
  }
}

void Losses::AddSuspectEvents(const Node& node, const std::string& what) {
  for (const auto& [id, number] : node.ranks.PlacedGenerations()) {
    Job& job = jobs_.at(id);
    const absl::Duration left =
        std::max(JobLeaseEnd(node, job) - context_.now.steady, absl::ZeroDuration());
    jobs_.AddEvent(job, events::kNodeSuspect,
                   absl::StrCat(what, "; its ranks are lost unless it reconnects within ",
                                absl::FormatDuration(absl::Ceil(left, absl::Milliseconds(100)))));
  }
}

}  // namespace muster::core
