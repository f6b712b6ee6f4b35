// Decides which layers of a graph are fused into one operation.
#ifndef MUSTER_TRAINER_GRAPH_FUSION_H_
#define MUSTER_TRAINER_GRAPH_FUSION_H_

#include <limits>
#include <variant>
#include <vector>

#include "kernels/activation.h"
#include "trainer/graph/graph.h"

namespace muster::nn {

// Layers fuse only where no other node uses the value between them. Each method returns the nodes
// that fuse with the given node, whose kind is in the method's name.
class Fusions {
 public:
  static constexpr NodeId kNone = std::numeric_limits<NodeId>::min();

  // `graph` must be valid and outlive this object.
  explicit Fusions(const Graph& graph);

  // The activation after a layer and the last of the two nodes; without an activation, the layer's
  // own node.
  struct Activated {
    kernels::Activation activation = kernels::Activation::kNone;
    NodeId last = kNone;
  };
  // For a convolution or linear layer. A ReLU before a pool is fused into the pool instead.
  Activated AfterConvolution(NodeId convolution) const;

  // Nodes fused after a batch norm: optionally (stochastic depth and) the sum whose branch it ends,
  // then the activation; without a sum also a max pooling after a ReLU.
  struct Normalized {
    NodeId add = kNone;
    kernels::Activation activation = kernels::Activation::kNone;
    NodeId pool = kNone;
    NodeId last = kNone;
  };
  // Max pooling that is fused: of 2x2 windows with stride 2, or of all, which not every device
  // does.
  enum class Pools { k2x2, kAll };
  Normalized AfterBatchNorm(NodeId batch_norm, Pools pools = Pools::k2x2) const;

  // The batch norm that ends the branch of a sum, or kNone.
  NodeId BatchNormBefore(NodeId add) const;
  // The batch norm of a shortcut whose values the sum's operation, itself a batch norm, computes in
  // training, or kNone. Its input is a convolution's, which is kept for backward.
  NodeId ShortcutBatchNorm(NodeId add) const;
  // The sum that computes a batch norm's values in training, or kNone.
  NodeId AppliedBySum(NodeId batch_norm) const;
  Activated AfterAdd(NodeId add) const { return Activate(add); }

  // Whether a convolution reads only some of the pixels of a value whose only other user is a
  // convolution that reads all: then the gradient of its input need not contain the others' zeros.
  bool SkipsPixels(NodeId convolution) const;

  // The convolution into which evaluation folds a batch norm, or kNone.
  NodeId FoldsInto(NodeId batch_norm) const;
  // The batch norm that evaluation folds into a convolution, or kNone.
  NodeId FoldedBatchNorm(NodeId convolution) const;

  // The max pooling that is fused with a ReLU, or kNone.
  NodeId PoolAfter(NodeId relu) const { return Next<MaxPool2d>(relu); }

  // The last node of the operation that begins with `node`, which must not be fused with an earlier
  // node. For training; in evaluation a convolution also includes its batch norm.
  NodeId LastOf(NodeId node) const;

  // See Consumers in shapes.h.
  const std::vector<std::vector<NodeId>>& consumers() const { return consumers_; }

 private:
  template <typename T>
  bool Is(NodeId node) const {
    return node >= 0 && std::holds_alternative<T>(graph_.nodes[node].layer);
  }
  // The node's only consumer if that is a T, or kNone.
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
