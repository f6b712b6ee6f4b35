// A model as a static graph of layers: what Compile turns into a Plan.
//
// Nodes stand in an order in which each comes after its inputs; parameters lie in memory in this
// order too. Names are those of torch.nn.Sequential or torchvision: a node's parameters are called
// NAME.weight, NAME.bias and so on. Any number of nodes may take a node's output.
#ifndef MUSTER_WORKER_NN_GRAPH_H_
#define MUSTER_WORKER_NN_GRAPH_H_

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

// An index into Graph::nodes.
using NodeId = int32_t;
inline constexpr NodeId kInput = -1;  // the batch itself

struct Node {
  std::string name;
  Layer layer;
  std::vector<NodeId> inputs;
};

struct Graph {
  ImageShape input;
  std::vector<Node> nodes;  // the last one's output is the logits

  NodeId Add(std::string name, Layer layer, std::vector<NodeId> inputs) {
    nodes.push_back({std::move(name), std::move(layer), std::move(inputs)});
    return static_cast<NodeId>(nodes.size()) - 1;
  }
};

}  // namespace muster::nn

#endif  // MUSTER_WORKER_NN_GRAPH_H_
