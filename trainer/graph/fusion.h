// Which layers of a graph are computed together.
#ifndef MUSTER_TRAINER_GRAPH_FUSION_H_
#define MUSTER_TRAINER_GRAPH_FUSION_H_

#include <limits>
#include <variant>
#include <vector>

#include "kernels/activation.h"
#include "trainer/graph/graph.h"

namespace muster::nn {

// Layers fuse only where nobody else takes the value in between. Each of these gives the nodes that
// fuse with one, whose kind the function's name says.
class Fusions {
 public:
  static constexpr NodeId kNone = std::numeric_limits<NodeId>::min();

  // A valid graph, which outlives this.
  explicit Fusions(const Graph& graph);

  // The activation after a layer, and the last node of the two: the layer's own without any.
  struct Activated {
    kernels::Activation activation = kernels::Activation::kNone;
    NodeId last = kNone;
  };
  // Of a convolution or linear layer. A pool takes the ReLU before it along.
  Activated AfterConvolution(NodeId convolution) const;

  // What follows a batch norm: (stochastic depth, the sum that takes it as its branch) or nothing,
  // the activation, and without a sum a 2x2 max pooling after a ReLU.
  struct Normalized {
    NodeId add = kNone;
    kernels::Activation activation = kernels::Activation::kNone;
    bool pool = false;
    NodeId last = kNone;
  };
  Normalized AfterBatchNorm(NodeId batch_norm) const;

  // The batch norm that ends the branch of a sum, or kNone.
  NodeId BatchNormBefore(NodeId add) const;
  Activated AfterAdd(NodeId add) const { return Activate(add); }

  // The convolution that evaluation computes a batch norm in, or kNone.
  NodeId FoldsInto(NodeId batch_norm) const;
  // The batch norm that evaluation computes in a convolution, or kNone.
  NodeId Folds(NodeId convolution) const;

  // The max pooling that takes a ReLU along, or kNone.
  NodeId PoolAfter(NodeId relu) const { return Next<MaxPool2d>(relu); }

  // The last of the nodes that one operation computes from this one on, where nobody before this
  // one is a part of it. In training; in evaluation a convolution goes on with its batch norm.
  NodeId LastOf(NodeId node) const;

  // As in shapes.h.
  const std::vector<std::vector<NodeId>>& consumers() const { return consumers_; }

 private:
  template <typename T>
  bool Is(NodeId node) const {
    return node >= 0 && std::holds_alternative<T>(graph_.nodes[node].layer);
  }
  // The node that takes this one's output, if nobody else does and it is a T.
  template <typename T>
  NodeId Next(NodeId node) const {
    if (consumers_[node].size() != 1) return kNone;
    const NodeId next = consumers_[node][0];
    return Is<T>(next) ? next : kNone;
  }
  Activated Activate(NodeId node) const;

  const Graph& graph_;
  const std::vector<std::vector<NodeId>> consumers_;
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_FUSION_H_
