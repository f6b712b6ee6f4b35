// LifeCycle: the ends of leases. After the node's own lease, nothing new is placed on it. When the
// lease of a job ends, its ranks there are lost; those of a command job once they have ended for
// certain (see nodes/fence.h).
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/jobs/job_lease.h"
#include "coordinator/core/life_cycle.h"
#include "coordinator/core/reasons.h"
#include "spec/cut_off.h"

namespace muster::core {
namespace {

std::string SilenceOf(const Node& node, SteadyTime now) {
  return absl::StrCat("no heartbeat for ", absl::FormatDuration(absl::Trunc(
                                               now - node.last_heard, absl::Milliseconds(100))));
}

}  // namespace

void LifeCycle::OnLeaseEnd(const Node& node) {
  if (!context_.leases_end) return;
  const std::string why = SilenceOf(node, context_.now.steady);
  if (node.PlacedGenerations().empty() && !jobs_.UsesNode(node.name())) {
    return LoseNode(node.name(), why);
  }
  if (node.session.has_value()) {
    AddSuspectEvents(node, absl::StrCat("node ", node.record.name(), " has sent ", why));
    nodes_.Reject(node.name(), absl::UnavailableError(why));
  }
  OnJobLeaseEnd(node);
}

void LifeCycle::OnJobLeaseEnd(const Node& node) {
  if (!context_.leases_end) return;
  const std::string why = SilenceOf(node, context_.now.steady);
  std::vector<std::pair<JobId, Generation>> lost;
  bool waits = false;
  SteadyTime next = fence_.NextEnd(node.name());
  for (const auto& placed : node.PlacedGenerations()) {
    const Job& job = jobs_.at(placed.first);
    if (JobLeaseEnd(node, job) > context_.now.steady) continue;
    if (HaveEnded(node, job)) {
      lost.push_back(placed);
    } else {
      waits = true;
    }
  }
  // A node whose ranks have all ended keeps the leases of their jobs as well.
  for (const JobId& id : jobs_.active()) {
    const Job& job = jobs_.at(id);
    if (!job.generation->NodeRank(node.name()).has_value()) continue;
    const SteadyTime end = JobLeaseEnd(node, job);
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

bool LifeCycle::HaveEnded(const Node& node, const Job& job) {
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

SteadyTime LifeCycle::JobLeaseEnd(const Node& node, const Job& job) const {
  return node.lease_start + LeaseOf(job, context_.options);
}

void LifeCycle::OnBansKept(const NodeName& member, const v1::BansKept& kept) {
  for (const NodeName& name : fence_.OnBansKept(member, kept)) {
    const Node* const node = nodes_.Find(name);
    if (node != nullptr && node->state == v1::SUSPECT) OnJobLeaseEnd(*node);
  }
}

void LifeCycle::ExpectReports() {
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

void LifeCycle::OnReported(const NodeName& name) {
  for (const auto& [id, number] : nodes_.at(name).PlacedGenerations()) {
    Job& job = jobs_.at(id);
    const uint32_t node_rank = *job.generation->NodeRank(name);
    v1::NodePlacement& placement = *job.generation->record.mutable_nodes(node_rank);
    if (!placement.unconfirmed()) continue;
    placement.clear_unconfirmed();
    jobs_.MarkPlacement(job, node_rank);
  }
}

void LifeCycle::AddSuspectEvents(const Node& node, const std::string& what) {
  for (const auto& [id, number] : node.PlacedGenerations()) {
    Job& job = jobs_.at(id);
    const absl::Duration left =
        std::max(JobLeaseEnd(node, job) - context_.now.steady, absl::ZeroDuration());
    jobs_.AddEvent(job, events::kNodeSuspect,
                   absl::StrCat(what, "; its ranks are lost unless it reconnects within ",
                                absl::FormatDuration(absl::Ceil(left, absl::Milliseconds(100)))));
  }
}

}  // namespace muster::core
