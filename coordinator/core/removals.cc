#include "coordinator/core/removals.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/reasons.h"

namespace muster::core {

void Removals::Handle(const RemoveJob& event) {
  const absl::Status status = CheckJob(event);
  if (!status.ok()) {
    context_.effects.replies.push_back({event.request, status, false});
    return;
  }
  const Job& job = jobs_.at(event.job_id);
  context_.effects.replies.push_back({event.request, job.status, false});
  context_.Log(DoneBy(absl::StrCat("job ", event.job_id.value(), " was removed"), event.actor));
  DeleteFiles(job);
  jobs_.Remove(event.job_id);
}

absl::Status Removals::CheckJob(const RemoveJob& event) const {
  const Job* const job = jobs_.Find(event.job_id);
  if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job ", event.job_id.value()));
  const absl::Status owned = CheckOwner(job->status, event.actor);
  if (!owned.ok()) return owned;
  const JobArray* const array = jobs_.arrays().Find(job->status.array_id());
  if (array != nullptr && !array->ended()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", event.job_id.value(), " is a task of array ", array->id,
                     ", which has not ended; only its tasks can be cancelled"));
  }
  if (IsTerminal(job->state())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job ", event.job_id.value(), " is ", v1::JobState_Name(job->state()),
                   "; only a finished job can be removed: muster cancel ", event.job_id.value()));
}

void Removals::DeleteFiles(const Job& job) {
  std::map<std::string, Generation> newest;  // by node
  for (const auto& [number, record] : job.past) {
    for (const v1::NodePlacement& placement : record.nodes()) newest[placement.node()] = number;
  }
  for (const auto& [name, number] : newest) {
    const Node* const node = nodes_.Find(NodeName(name));
    if (node == nullptr) continue;
    v1::ForgetGeneration forget;
    forget.set_job_id(job.status.job_id());
    forget.set_generation(number.value());
    forget.set_delete_files(true);
    nodes_.SendForget(*node, std::move(forget));
  }
}

void Removals::Handle(const RemoveNode& event) {
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

void Removals::Evict(const Node& node, const std::string& why) {
  const std::string& name = node.record.name();
  if (node.session.has_value()) {
    nodes_.Reject(node.name(), absl::PermissionDeniedError(
                                   absl::StrCat("node ", name, " was ", why,
                                                "; join again with a token of muster node token")));
  }
  identities_.Ban(node.incarnation());
  evicted_.insert(node.name());
  std::vector<std::pair<JobId, Generation>> lost;
  for (const auto& placed : node.PlacedGenerations()) {
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
  life_cycle_.LosePlaced(node, lost, why);
}

void Removals::RemoveEvicted() {
  for (auto name = evicted_.begin(); name != evicted_.end();) {
    const Node* const node = nodes_.Find(*name);
    const bool gone = node == nullptr || node->session.has_value();  // or has joined again
    if (!gone && (!node->PlacedGenerations().empty() || jobs_.UsesNode(*name))) {
      ++name;
      continue;
    }
    if (!gone) nodes_.Remove(*name);
    name = evicted_.erase(name);
  }
}

void Removals::Handle(const ConfirmNodeLost& event) {
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
  life_cycle_.LoseNode(event.node, why);
}

absl::Status Removals::CheckDisconnected(const Node& node) {
  if (!node.session.has_value()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("node ", node.record.name(), " is connected; stop its worker first"));
}

absl::Status Removals::CheckNode(const RemoveNode& event) const {
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
  if (!node->busy.empty() || jobs_.UsesNode(name)) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", name.value(),
                     " has ranks; cancel or requeue their jobs first: muster node "
                     "describe ",
                     name.value()));
  }
  return absl::OkStatus();
}

}  // namespace muster::core
