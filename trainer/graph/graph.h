// A model as a static graph of layers, the input of Compile.
//
// Nodes are in topological order, and parameters are stored in the same order. Names are those of
// torch.nn.Sequential or torchvision: a node's parameters are called NAME.weight, NAME.bias and so
// on. Any number of nodes may use a node's output.
//
// A graph may also be one stage of a model, as made by trainer/graph/cut.h: then it takes values of
// earlier stages and outputs values for later stages.
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

// Shape of a value for one sample.
struct ValueShape {
  // Flat values have height = width = 1.
  ImageShape image;
  bool flat = false;
  // Input shape of Flatten, which gives the order of a Linear's columns in files; for a flat input
  // its own shape.
  ImageShape flattened_from;

  int64_t elements() const { return image.height * image.width * image.channels; }
};

// Initialization of the weights (and the bias) of a convolution or linear layer. With both normal
// distributions the bias is zero.
enum class Initialization {
  kPyTorchDefault,       // both uniform within 1 / sqrt(fan in)
  kKaimingNormalFanOut,  // normal with variance 2 / (out channels * kernel^2) (He et al. 2015)
  kNormal,               // normal with the layer's standard_deviation
};

// Padding is zeros on each side. `groups` divides the channels on both sides; a filter reads only
// the input channels of its group.
struct Conv2d {
  int64_t out_channels = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t groups = 1;
  bool bias = true;
  Initialization initialization = Initialization::kPyTorchDefault;
  double standard_deviation = 0.01;  // used by kNormal
};

struct BatchNorm2d {
  double epsilon = 1e-5;
  double momentum = 0.1;     // weight of the newest batch in the running statistics
  bool zero_weight = false;  // initialize the weight to 0, so that a residual block is the identity
};

struct Relu {};

// min(max(x, 0), 6).
struct Relu6 {};

// Square windows. Padding is never the maximum and is at most half the kernel. Windows that would
// exceed the (padded) image are left out.
struct MaxPool2d {
  int64_t kernel = 2;
  int64_t stride = 2;
  int64_t padding = 0;
};

struct AvgPool2d {
  int64_t kernel = 2;
  int64_t stride = 2;
};

// Output size 1x1: the mean over the image.
struct AdaptiveAvgPool2d {};

// Flattens to one vector per sample. Parameter files use PyTorch's order (channel, row, column).
struct Flatten {};

// Takes a flattened input.
struct Linear {
  int64_t out_features = 1;
  bool bias = true;
  Initialization initialization = Initialization::kPyTorchDefault;
  double standard_deviation = 0.01;  // used by kNormal
};

struct Dropout {
  double probability = 0;  // probability of a zero, in [0, 1)
};

// The sum of two inputs of equal shape: first the residual branch, then the shortcut.
struct Add {};

// Drops a residual branch in a whole training step with this probability, in [0, 1), and scales it
// by 1 / (1 - probability) otherwise (Huang et al. 2016). Placed between the branch's last layer,
// whose output no other node uses, and the Add whose first input is the branch.
struct StochasticDepth {
  double probability = 0;
};

using Layer = std::variant<Conv2d, BatchNorm2d, Relu, Relu6, MaxPool2d, AvgPool2d,
                           AdaptiveAvgPool2d, Flatten, Linear, Dropout, Add, StochasticDepth>;

// An index into Graph::nodes; as an input of a node also the batch (kInput) or one of Graph::inputs
// (EarlierValueId).
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

// An input of a stage that an earlier stage computes.
struct EarlierValue {
  std::string name;  // name of the layer that computes it
  ValueShape shape;
  bool needs_gradient = true;  // an earlier parameter that it depends on is trained
};

struct Graph {
  ImageShape input;
  std::vector<Node> nodes;  // the last one's output is the logits, unless there are `outputs`

  // Only for a stage; empty for a whole model. Both are in the order of the model's nodes. A stage
  // with inputs does not take the batch.
  std::vector<EarlierValue> inputs = {};
  // Values for later stages: outputs of nodes, and inputs that pass through.
  std::vector<NodeId> outputs = {};
  // Number of the model's nodes before the stage: random numbers depend on a node's index in the
  // whole model.
  NodeId first_node = 0;

  NodeId Add(std::string name, Layer layer, std::vector<NodeId> inputs) {
    nodes.push_back({std::move(name), std::move(layer), std::move(inputs)});
    return static_cast<NodeId>(nodes.size()) - 1;
  }
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_GRAPH_H_
