// Nodes that are to take no more ranks: by an operator's word, or because their worker ends.
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/core/core_impl.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

std::string WithReason(std::string text, const std::string& reason) {
  return reason.empty() ? text : absl::StrCat(text, ": ", reason);
}

}  // namespace

void Core::Impl::Handle(const CordonNode& event) {
  Node* node = FindNode(event.node);
  if (node == nullptr) return;
  if (!node->record.cordoned() || node->record.cordon_reason() != event.reason) {
    node->record.set_cordoned(true);
    node->record.set_cordon_reason(event.reason);
    MarkNode(*node);
    effects_.logs.push_back(
        WithReason(absl::StrCat("node ", event.node.value(), " is cordoned"), event.reason));
  }
  if (event.drain) {
    MoveJobsAway(*node, WithReason(absl::StrCat("node ", event.node.value(), " is being drained"),
                                   event.reason));
  }
}

void Core::Impl::Handle(const UncordonNode& event) {
  Node* node = FindNode(event.node);
  if (node == nullptr || !node->record.cordoned()) return;
  node->record.clear_cordoned();
  node->record.clear_cordon_reason();
  MarkNode(*node);
  capacity_changed_ = true;
  effects_.logs.push_back(absl::StrCat("node ", event.node.value(), " is not cordoned any more"));
}

void Core::Impl::OnLeaving(Node& node) {
  if (std::exchange(node.leaving, true)) return;
  effects_.logs.push_back(absl::StrCat("node ", node.record.name(), " is leaving"));
  MoveJobsAway(node, absl::StrCat("the worker of node ", node.record.name(), " is ending"));
}

void Core::Impl::MoveJobsAway(const Node& node, const std::string& why) {
  const std::vector<std::pair<JobId, Generation>> placed = node.PlacedGenerations();
  for (const auto& [id, number] : placed) {
    Job& job = jobs_.at(id);
    // What stops goes elsewhere, or nowhere, anyway.
    if (job.state() == v1::STARTING || job.state() == v1::RUNNING) {
      StopAndRequeue(job, reasons::kNodeDrained, why);
    }
  }
}

}  // namespace muster::core
