// LifeCycle: the ends of leases. After the node's own lease, nothing new is placed on it; its ranks
// of each job are lost when that job's lease ends.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/jobs/job_lease.h"
#include "coordinator/core/life_cycle.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

std::string SilenceOf(const Node& node, SteadyTime now) {
  return absl::StrCat("no heartbeat for ", absl::FormatDuration(absl::Trunc(
                                               now - node.last_heard, absl::Milliseconds(100))));
}

}  // namespace

void LifeCycle::OnLeaseEnd(const Node& node) {
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
  const std::string why = SilenceOf(node, context_.now.steady);
  std::vector<std::pair<JobId, Generation>> lost;
  SteadyTime next = SteadyTime::Infinite();
  for (const auto& placed : node.PlacedGenerations()) {
    const SteadyTime end = JobLeaseEnd(node, jobs_.at(placed.first));
    if (end <= context_.now.steady) lost.push_back(placed);
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
    LosePlaced(node, lost, why);
  } else {
    LoseNode(node.name(), why);
  }
}

SteadyTime LifeCycle::JobLeaseEnd(const Node& node, const Job& job) const {
  return node.lease_start + LeaseOf(job, context_.options);
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
