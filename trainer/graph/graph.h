// A model as a static graph of layers: what Compile turns into a Plan.
//
// Nodes stand in an order in which each comes after its inputs; parameters lie in memory in this
// order too. Names are those of torch.nn.Sequential or torchvision: a node's parameters are called
// NAME.weight, NAME.bias and so on. Any number of nodes may take a node's output.
//
// A graph may also be a part of a model, as trainer/graph/cut.h cuts it: then values of earlier
// parts come in, and values go out that later parts take.
#ifndef MUSTER_TRAINER_GRAPH_GRAPH_H_
#define MUSTER_TRAINER_GRAPH_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace muster::nn {

struct ImageShape {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
};

// Of one row of a value.
struct ValueShape {
  // Flat values have height = width = 1.
  ImageShape image;
  bool flat = false;
  // What Flatten saw, for the order of a Linear's columns in files; a flat input's own shape
  // otherwise.
  ImageShape flattened_from;

  int64_t elements() const { return image.height * image.width * image.channels; }
};

// How the weights (and the bias) of a convolution or linear layer start out.
enum class Initialization {
  kPyTorchDefault,       // both uniform within 1 / sqrt(fan in)
  kKaimingNormalFanOut,  // normal with variance 2 / (out channels * kernel^2) (He et al. 2015)
  kNormal,               // normal with the layer's standard_deviation
};
// The bias is zero with both normal ones.

// Padding is zeros at each side. `groups` divides the channels on both sides; a filter sees the
// input channels of its group alone.
struct Conv2d {
  int64_t out_channels = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t groups = 1;
  bool bias = true;
  Initialization initialization = Initialization::kPyTorchDefault;
  double standard_deviation = 0.01;  // of kNormal
};

struct BatchNorm2d {
  double epsilon = 1e-5;
  double momentum = 0.1;     // of the running statistics: the share of the newest batch
  bool zero_weight = false;  // the weight starts with zeros: a residual block starts as identity
};

struct Relu {};

// min(max(x, 0), 6).
struct Relu6 {};

// Square windows. Padding never wins; at most half the kernel. A window that would reach beyond the
// (padded) image is left out.
struct MaxPool2d {
  int64_t kernel = 2;
  int64_t stride = 2;
  int64_t padding = 0;
};

struct AvgPool2d {
  int64_t kernel = 2;
  int64_t stride = 2;
};

// To 1x1: the mean over the image.
struct AdaptiveAvgPool2d {};

// To one vector per row, in PyTorch's order (channel, line, column) as far as parameters in files
// go.
struct Flatten {};

// Takes a flattened input.
struct Linear {
  int64_t out_features = 1;
  bool bias = true;
  Initialization initialization = Initialization::kPyTorchDefault;
  double standard_deviation = 0.01;  // of kNormal
};

struct Dropout {
  double probability = 0;  // of an element to become zero; [0, 1)
};

// The sum of two inputs of equal shape: first the residual branch, then the shortcut.
struct Add {};

// Leaves a residual branch out of a whole training step with this probability, [0, 1), and scales
// it by 1 / (1 - probability) otherwise (Huang et al. 2016). Stands between the branch's last
// layer, whose output nobody else takes, and the Add that takes the branch first.
struct StochasticDepth {
  double probability = 0;
};

using Layer = std::variant<Conv2d, BatchNorm2d, Relu, Relu6, MaxPool2d, AvgPool2d,
                           AdaptiveAvgPool2d, Flatten, Linear, Dropout, Add, StochasticDepth>;

// An index into Graph::nodes, or what a node takes in place of a node's output: the batch, or one
// of Graph::inputs.
using NodeId = int32_t;
inline constexpr NodeId kInput = -1;  // the batch itself
constexpr NodeId EarlierValueId(size_t index) { return kInput - 1 - static_cast<NodeId>(index); }
constexpr bool IsEarlierValue(NodeId node) { return node < kInput; }
constexpr size_t EarlierValueIndex(NodeId node) { return static_cast<size_t>(kInput - 1 - node); }

struct Node {
  std::string name;
  Layer layer;
  std::vector<NodeId> inputs;
};

// What a part of a model takes from earlier ones.
struct EarlierValue {
  std::string name;  // of the layer that computes it
  ValueShape shape;
  bool needs_gradient = true;  // a parameter before the part that it depends on is trained
};

struct Graph {
  ImageShape input;
  std::vector<Node> nodes;  // the last one's output is the logits, unless there are `outputs`

  // Of a part of a model; a whole one has none. Both in the order of the model's nodes. A part with
  // inputs does not take the batch.
  std::vector<EarlierValue> inputs = {};
  // Of later parts: outputs of nodes, and inputs that pass through.
  std::vector<NodeId> outputs = {};
  // How many nodes of the model come before the part: random numbers are drawn by the number that a
  // node has in the whole model.
  NodeId first_node = 0;

  NodeId Add(std::string name, Layer layer, std::vector<NodeId> inputs) {
    nodes.push_back({std::move(name), std::move(layer), std::move(inputs)});
    return static_cast<NodeId>(nodes.size()) - 1;
  }
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_GRAPH_H_
