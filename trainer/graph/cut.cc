#include "trainer/graph/cut.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "common/text/nearest.h"
#include "trainer/graph/fusion.h"
#include "trainer/graph/shapes.h"

namespace muster::nn {
namespace {

bool HasParameters(const Node& node) {
  return std::holds_alternative<Conv2d>(node.layer) ||
         std::holds_alternative<BatchNorm2d>(node.layer) ||
         std::holds_alternative<Linear>(node.layer);
}

// Whether the node outputs its input: no operation computes it, and both are the same memory.
bool PassesOn(const Node& node) {
  return std::holds_alternative<Flatten>(node.layer) ||
         std::holds_alternative<StochasticDepth>(node.layer);
}

// Finds the nodes at which a stage can begin by excluding nodes for one reason after the other.
class CutFinder {
 public:
  explicit CutFinder(const Graph& graph)
      : graph_(graph),
        count_(static_cast<NodeId>(graph.nodes.size())),
        fusions_(graph),
        excluded_(graph.nodes.size(), false) {
    for (NodeId node = 0; node < count_; ++node) {
      const NodeId from = graph.nodes[node].inputs[0];
      root_.push_back(!PassesOn(graph.nodes[node]) ? node : from == kInput ? kInput : root_[from]);
    }
  }

  std::vector<NodeId> Run() && {
    ExcludeFused();
    ExcludeWithoutParameters();
    ExcludePassedOn();
    ExcludeBranches();
    std::vector<NodeId> points;
    for (NodeId node = 1; node < count_; ++node) {
      if (!excluded_[node]) points.push_back(node);
    }
    return points;
  }

 private:
  // Allows no cut between `first` and `last`.
  void KeepTogether(NodeId first, NodeId last) {
    for (NodeId node = first + 1; node <= last; ++node) excluded_[node] = true;
  }

  // Visits the nodes as lowering does.
  void ExcludeFused() {
    std::vector<bool> done(graph_.nodes.size(), false);
    for (NodeId node = 0; node < count_; ++node) {
      if (done[node]) continue;
      const NodeId last = fusions_.LastOf(node);
      for (NodeId fused = node; fused != last; fused = fusions_.consumers()[fused][0]) {
        done[fused] = true;
      }
      done[last] = true;
      KeepTogether(node, last);
    }
  }

  // The first stage needs a parameter to train.
  void ExcludeWithoutParameters() {
    const auto first = std::find_if(graph_.nodes.begin(), graph_.nodes.end(), HasParameters);
    KeepTogether(kInput, static_cast<NodeId>(first - graph_.nodes.begin()));
  }

  // The input and the output of a node that passes its input on are one value with two names: only
  // one of them crosses a cut, and no stage begins with the second. The batch never crosses a cut.
  void ExcludePassedOn() {
    for (NodeId node = 0; node < count_; ++node) {
      for (const NodeId input : graph_.nodes[node].inputs) {
        if (input == kInput || root_[input] == kInput) KeepTogether(kInput, node);
      }
      if (!PassesOn(graph_.nodes[node])) continue;
      KeepTogether(node - 1, node);
      for (NodeId other = 0; other < node; ++other) {
        if (root_[other] == root_[node]) {
          KeepTogether(node, std::min(LastUse(other), LastUse(node)));
        }
      }
    }
  }

  NodeId LastUse(NodeId node) const {
    const std::vector<NodeId>& consumers = fusions_.consumers()[node];
    return consumers.empty() ? node : consumers.back();
  }

  // The end of the branch and the sum are one operation, or two with only the stochastic depth
  // between them; if the branch may be dropped, the whole branch stays together.
  void ExcludeBranches() {
    for (NodeId node = 0; node < count_; ++node) {
      const auto* const depth = std::get_if<StochasticDepth>(&graph_.nodes[node].layer);
      if (depth == nullptr) continue;
      NodeId first = graph_.nodes[node].inputs[0];
      if (depth->probability > 0) {
        const std::vector<bool> branch = LeadingOnlyInto(node, fusions_.consumers());
        first = static_cast<NodeId>(std::find(branch.begin(), branch.end(), true) - branch.begin());
      }
      KeepTogether(first, LastUse(node));
    }
  }

  const Graph& graph_;
  const NodeId count_;
  const Fusions fusions_;
  std::vector<NodeId> root_;    // by node: the node whose output it passes on
  std::vector<bool> excluded_;  // by node
};

bool IsWhole(const Graph& graph) {
  return graph.inputs.empty() && graph.outputs.empty() && graph.first_node == 0;
}

// By node: whether a parameter that its output depends on is trained.
std::vector<bool> NeedsGradient(const Graph& graph) {
  std::vector<bool> needs;
  for (const Node& node : graph.nodes) {
    bool any = HasParameters(node);
    for (const NodeId input : node.inputs) any = any || (input != kInput && needs[input]);
    needs.push_back(any);
  }
  return needs;
}

// The node with this name, or the first node of the operation with this name; -1 if there is none.
NodeId FindNode(const Graph& graph, absl::string_view layer) {
  const auto find = [&](absl::string_view name) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (graph.nodes[i].name == name) return static_cast<NodeId>(i);
    }
    return NodeId{-1};
  };
  if (const NodeId node = find(layer); node >= 0) return node;
  const size_t dots = layer.find("..");
  if (dots == absl::string_view::npos || find(layer.substr(dots + 2)) < 0) return -1;
  return find(layer.substr(0, dots));
}

}  // namespace

std::vector<NodeId> CutPoints(const Graph& graph) { return CutFinder(graph).Run(); }

absl::StatusOr<NodeId> FindCutPoint(const Graph& graph, absl::string_view layer) {
  const std::vector<NodeId> points = CutPoints(graph);
  const NodeId node = FindNode(graph, layer);
  if (node < 0) {
    std::vector<std::string> names;
    for (const Node& known : graph.nodes) names.push_back(known.name);
    return absl::InvalidArgumentError(
        absl::StrCat("the model has no layer ", Quoted(layer), DidYouMean(layer, names)));
  }
  const auto behind = std::lower_bound(points.begin(), points.end(), node);
  if (behind != points.end() && *behind == node) return node;
  const std::string cannot = absl::StrCat("no stage can begin with ", graph.nodes[node].name);
  if (points.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(cannot, " and the model has no cut point"));
  }
  std::vector<std::string> nearest;
  if (behind != points.begin()) {
    nearest.push_back(absl::StrCat(graph.nodes[*(behind - 1)].name, " (before)"));
  }
  if (behind != points.end()) {
    nearest.push_back(absl::StrCat(graph.nodes[*behind].name, " (after)"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(cannot, "; nearest possible layers: ", absl::StrJoin(nearest, ", ")));
}

absl::StatusOr<Graph> CutGraph(const Graph& graph, NodeId begin, NodeId end) {
  if (!IsWhole(graph)) return absl::InvalidArgumentError("cannot cut a stage of a model again");
  ASSIGN_OR_RETURN(const std::vector<ValueShape> shapes, InferShapes(graph));
  const NodeId count = static_cast<NodeId>(graph.nodes.size());
  const std::vector<NodeId> points = CutPoints(graph);
  const auto is_point = [&](NodeId node) {
    return std::binary_search(points.begin(), points.end(), node);
  };
  if (begin >= end || (begin != 0 && !is_point(begin)) || (end != count && !is_point(end))) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot cut the model into nodes ", begin, " to ", end - 1));
  }
  const std::vector<std::vector<NodeId>> consumers = Consumers(graph);
  const std::vector<bool> needs_gradient = NeedsGradient(graph);
  Graph stage = {.input = graph.input, .nodes = {}};
  stage.first_node = begin;
  std::vector<NodeId> id_in_stage(graph.nodes.size(), kInput);
  for (NodeId node = 0; node < end; ++node) {
    const NodeId last_use = consumers[node].empty() ? node : consumers[node].back();
    if (node >= begin) {
      id_in_stage[node] = node - begin;
    } else if (last_use >= begin) {
      id_in_stage[node] = EarlierValueId(stage.inputs.size());
      stage.inputs.push_back({.name = graph.nodes[node].name,
                              .shape = shapes[node],
                              .needs_gradient = needs_gradient[node]});
    }
    if (last_use >= end) stage.outputs.push_back(id_in_stage[node]);
  }
  for (NodeId node = begin; node < end; ++node) {
    Node copy = graph.nodes[node];
    for (NodeId& input : copy.inputs) input = input == kInput ? kInput : id_in_stage[input];
    stage.nodes.push_back(std::move(copy));
  }
  return stage;
}

}  // namespace muster::nn
