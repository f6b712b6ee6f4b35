#include "trainer/graph/fusion.h"

#include "trainer/graph/shapes.h"

namespace muster::nn {
namespace {

using kernels::Activation;

bool Is2x2(const MaxPool2d& pool) {
  return pool.kernel == 2 && pool.stride == 2 && pool.padding == 0;
}

}  // namespace

Fusions::Fusions(const Graph& graph) : graph_(graph), consumers_(Consumers(graph)) {}

Fusions::Activated Fusions::Activate(NodeId node) const {
  if (const NodeId relu = Next<Relu>(node); relu != kNone) return {Activation::kRelu, relu};
  if (const NodeId relu6 = Next<Relu6>(node); relu6 != kNone) return {Activation::kRelu6, relu6};
  return {Activation::kNone, node};
}

Fusions::Activated Fusions::AfterConvolution(NodeId convolution) const {
  const Activated activated = Activate(convolution);
  if (activated.activation == Activation::kRelu && PoolAfter(activated.last) != kNone) {
    return {Activation::kNone, convolution};
  }
  return activated;
}

Fusions::Normalized Fusions::AfterBatchNorm(NodeId batch_norm, Pools pools) const {
  NodeId end = batch_norm;
  if (const NodeId depth = Next<StochasticDepth>(end); depth != kNone) end = depth;
  const NodeId add = Next<Add>(end);
  if (add != kNone && graph_.nodes[add].inputs[0] == end) {
    const Activated activated = Activate(add);
    return {.add = add, .activation = activated.activation, .last = activated.last};
  }
  const Activated activated = Activate(batch_norm);
  Normalized normalized = {.activation = activated.activation, .last = activated.last};
  if (activated.activation == Activation::kRelu) {
    const NodeId pool = PoolAfter(activated.last);
    if (pool != kNone &&
        (pools == Pools::kAll || Is2x2(std::get<MaxPool2d>(graph_.nodes[pool].layer)))) {
      normalized.pool = pool;
      normalized.last = pool;
    }
  }
  return normalized;
}

NodeId Fusions::BatchNormBefore(NodeId add) const {
  NodeId end = graph_.nodes[add].inputs[0];
  if (Is<StochasticDepth>(end)) end = graph_.nodes[end].inputs[0];
  return Is<BatchNorm2d>(end) && AfterBatchNorm(end).add == add ? end : kNone;
}

NodeId Fusions::ShortcutBatchNorm(NodeId add) const {
  const NodeId branch = graph_.nodes[add].inputs[0];
  const NodeId shortcut = graph_.nodes[add].inputs[1];
  const bool whole_branch = BatchNormBefore(add) == branch;  // without stochastic depth
  return whole_branch && Is<BatchNorm2d>(shortcut) && Next<Add>(shortcut) == add &&
                 FoldsInto(shortcut) != kNone
             ? shortcut
             : kNone;
}

NodeId Fusions::AppliedBySum(NodeId batch_norm) const {
  const NodeId add = Next<Add>(batch_norm);
  return add != kNone && ShortcutBatchNorm(add) == batch_norm ? add : kNone;
}

bool Fusions::SkipsPixels(NodeId convolution) const {
  const auto skips = [](const Conv2d& layer) { return layer.stride > layer.kernel; };
  const auto& layer = std::get<Conv2d>(graph_.nodes[convolution].layer);
  const NodeId input = graph_.nodes[convolution].inputs[0];
  if (layer.kernel != 1 || layer.padding != 0 || layer.groups != 1 || !skips(layer) || input < 0) {
    return false;
  }
  const std::vector<NodeId>& users = consumers_[input];
  if (users.size() != 2) return false;
  const NodeId other = users[0] == convolution ? users[1] : users[0];
  return other != convolution && Is<Conv2d>(other) &&
         !skips(std::get<Conv2d>(graph_.nodes[other].layer));
}

NodeId Fusions::LastOf(NodeId node) const {
  if (Is<Conv2d>(node) || Is<Linear>(node)) return AfterConvolution(node).last;
  if (Is<BatchNorm2d>(node)) return AfterBatchNorm(node).last;
  if (Is<Add>(node)) return AfterAdd(node).last;
  const NodeId pool = Is<Relu>(node) ? PoolAfter(node) : kNone;
  return pool == kNone ? node : pool;
}

NodeId Fusions::FoldsInto(NodeId batch_norm) const {
  const NodeId from = graph_.nodes[batch_norm].inputs[0];
  // A pool needs a separate pass anyway, which also normalises.
  return Is<Conv2d>(from) && consumers_[from].size() == 1 &&
                 AfterBatchNorm(batch_norm).pool == kNone
             ? from
             : kNone;
}

NodeId Fusions::FoldedBatchNorm(NodeId convolution) const {
  const NodeId batch_norm = Next<BatchNorm2d>(convolution);
  return batch_norm != kNone && FoldsInto(batch_norm) == convolution ? batch_norm : kNone;
}

}  // namespace muster::nn
