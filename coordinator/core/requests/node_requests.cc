#include "coordinator/core/requests/node_requests.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/reasons.h"

namespace muster::core {

void NodeRequests::Handle(const CordonNode& event) {
  const Node* const node = nodes_.Find(event.node);
  if (node == nullptr) return;
  health_.Cordon(event.node, event.reason);
  if (!event.drain) return;
  std::optional<SteadyTime> until;
  if (event.deadline.has_value()) until = context_.now.steady + *event.deadline;
  health_.SetDrainDeadline(event.node, until);
  life_cycle_.MoveJobsAway(
      *node,
      WithReason(absl::StrCat("node ", event.node.value(), " is being drained"), event.reason));
  if (until.has_value()) generations_.Shorten(*node);
}

void NodeRequests::Handle(const UncordonNode& event) { health_.Uncordon(event.node); }

void NodeRequests::Handle(const TestNode& event) {
  const absl::Status started = health_.TestNode(event.node);
  Reply reply{event.request, v1::Job()};
  if (!started.ok()) reply.job = started;
  context_.effects.replies.push_back(std::move(reply));
}

void NodeRequests::Handle(const RemoveNode& event) {
  const absl::Status status = CheckNode(event);
  if (!status.ok()) {
    context_.effects.replies.push_back({event.request, status, false});
    return;
  }
  const std::string why = DoneBy("removed", event.actor);
  const Node* const node = nodes_.Find(event.node);
  if (node != nullptr && event.force) {
    Evict(*node, why);
  } else if (node != nullptr) {
    nodes_.Remove(event.node);
  }
  identities_.Remove(event.node);
  context_.Log(absl::StrCat("node ", event.node.value(), " was ", why));
  context_.effects.replies.push_back({event.request, v1::Job(), false});
}

void NodeRequests::Evict(const Node& node, const std::string& why) {
  const std::string& name = node.record.name();
  if (node.session.has_value()) {
    node_sessions_.Reject(node.name(), absl::PermissionDeniedError(absl::StrCat(
                                           "node ", name, " was ", why,
                                           "; join again with a token of muster node token")));
  }
  identities_.Ban(node.incarnation());
  evicted_.insert(node.name());
  std::vector<std::pair<JobId, Generation>> lost;
  for (const auto& placed : node.ranks.PlacedGenerations()) {
    Job& job = jobs_.at(placed.first);
    // A train job publishes only under its newest generation.
    if (job.is_train()) {
      lost.push_back(placed);
    } else {
      jobs_.AddEvent(job, events::kNodeSuspect,
                     absl::StrCat("node ", name, " was ", why,
                                  "; the job waits for the end of its ranks there: muster why ",
                                  job.id().value()));
    }
  }
  losses_.LosePlaced(node, lost, why);
}

void NodeRequests::RemoveEvicted() {
  for (auto name = evicted_.begin(); name != evicted_.end();) {
    const Node* const node = nodes_.Find(*name);
    const bool gone = node == nullptr || node->session.has_value();  // or has joined again
    if (!gone && (!node->ranks.PlacedGenerations().empty() || !jobs_.ActiveOn(*name).empty())) {
      ++name;
      continue;
    }
    if (!gone) nodes_.Remove(*name);
    name = evicted_.erase(name);
  }
}

void NodeRequests::Handle(const ConfirmNodeLost& event) {
  const Node* const node = nodes_.Find(event.node);
  const absl::Status status =
      node == nullptr ? absl::NotFoundError(absl::StrCat("no node ", event.node.value()))
                      : CheckDisconnected(*node);
  context_.effects.replies.push_back({event.request, v1::Job(), false});
  if (!status.ok()) {
    context_.effects.replies.back().job = status;
    return;
  }
  const std::string why = DoneBy("confirmed as lost", event.actor);
  context_.Log(absl::StrCat("node ", event.node.value(), " was ", why));
  losses_.LoseNode(event.node, why);
}

absl::Status NodeRequests::CheckDisconnected(const Node& node) {
  if (!node.session.has_value()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("node ", node.record.name(), " is connected; stop its worker first"));
}

absl::Status NodeRequests::CheckNode(const RemoveNode& event) const {
  const NodeName& name = event.node;
  const Node* const node = nodes_.Find(name);
  if (node == nullptr) {
    // A node that has joined need not have connected.
    if (identities_.Has(name)) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("no node ", name.value()));
  }
  if (event.force) return absl::OkStatus();
  const absl::Status disconnected = CheckDisconnected(*node);
  if (!disconnected.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        disconnected.message(), ", or evict it: muster node remove ", name.value(), " --force"));
  }
  if (!node->ranks.by_slot().empty() || !jobs_.ActiveOn(name).empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", name.value(),
                     " has ranks; cancel or requeue their jobs first: muster node "
                     "describe ",
                     name.value()));
  }
  return absl::OkStatus();
}

}  // namespace muster::core
