// Small networks that cover every layer, fused and not fused, with odd sizes and numbers of
// channels that are not a multiple of a vector.
#ifndef MUSTER_TRAINER_GRAPH_TESTING_GRAPHS_H_
#define MUSTER_TRAINER_GRAPH_TESTING_GRAPHS_H_

#include <ostream>
#include <string>
#include <vector>

#include "trainer/graph/graph.h"

namespace muster::nn {

inline constexpr int64_t kTestClasses = 7;

struct TestGraph {
  std::string name;
  Graph graph;
};
void PrintTo(const TestGraph& value, std::ostream* os);

// Like resnet18, with one block of each kind: a stem with a 3x3 max pooling, convolutions without a
// bias, an identity and a downsampling shortcut. `drop_probability` applies to both blocks.
Graph SmallResNet(double drop_probability = 0);

// Like mobilenet_v2: an inverted residual with ReLU6, a depthwise convolution and a linear end.
Graph SmallMobileNet();

// Residual blocks without batch norm, with dropout and stochastic depth.
Graph StochasticBranches();

std::vector<TestGraph> TestGraphs();

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_TESTING_GRAPHS_H_
