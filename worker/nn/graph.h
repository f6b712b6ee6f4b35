// A model as a static graph of layers: what Compile turns into a Plan.
//
// Nodes stand in an order in which each comes after its inputs. Names are those of
// torch.nn.Sequential or torchvision: a node's parameters are called NAME.weight, NAME.bias and so
// on.
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

// With a bias. Padding is zeros at each side.
struct Conv2d {
  int64_t out_channels = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
};

struct BatchNorm2d {
  double epsilon = 1e-5;
  double momentum = 0.1;  // of the running statistics: the share of the newest batch
};

struct Relu {};

// 2x2 with stride 2.
struct MaxPool2d {};

// To one vector per row, in PyTorch's order (channel, line, column) as far as parameters in files
// go.
struct Flatten {};

// With a bias. Takes a flattened input.
struct Linear {
  int64_t out_features = 1;
};

struct Dropout {
  double probability = 0;  // of an element to become zero; [0, 1)
};

using Layer = std::variant<Conv2d, BatchNorm2d, Relu, MaxPool2d, Flatten, Linear, Dropout>;

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
