#include "trainer/graph/testing/graphs.h"

#include <utility>

namespace muster::nn {
namespace {

// Appends layers to a graph; each takes the output of the previous one.
class Builder {
 public:
  Builder(Graph* graph, NodeId from) : graph_(*graph), last_(from) {}

  NodeId operator()(const std::string& name, Layer layer) {
    return last_ = graph_.Add(name, std::move(layer), {last_});
  }
  NodeId last() const { return last_; }

 private:
  Graph& graph_;
  NodeId last_;
};

Conv2d Convolution(int64_t channels, int64_t kernel, int64_t stride, int64_t groups = 1) {
  return {.out_channels = channels,
          .kernel = kernel,
          .stride = stride,
          .padding = kernel / 2,
          .groups = groups,
          .bias = false,
          .initialization = Initialization::kKaimingNormalFanOut};
}

void EndWithClassifier(Graph& graph, NodeId from) {
  Builder add(&graph, from);
  add("avgpool", AdaptiveAvgPool2d{});
  add("flatten", Flatten{});
  add("fc", Linear{kTestClasses});
}

// Two convolutions and a shortcut, as in resnet18.
NodeId AddBasicBlock(Graph& graph, NodeId from, const std::string& name, int64_t channels,
                     int64_t stride, double drop_probability) {
  Builder branch(&graph, from);
  branch(name + ".conv1", Convolution(channels, 3, stride));
  branch(name + ".bn1", BatchNorm2d{});
  branch(name + ".relu", Relu{});
  branch(name + ".conv2", Convolution(channels, 3, 1));
  branch(name + ".bn2", BatchNorm2d{});
  if (drop_probability > 0) branch(name + ".drop", StochasticDepth{drop_probability});
  Builder shortcut(&graph, from);
  if (stride != 1) {
    shortcut(name + ".downsample.0", Convolution(channels, 1, stride));
    shortcut(name + ".downsample.1", BatchNorm2d{});
  }
  const NodeId sum = graph.Add(name + ".add", Add{}, {branch.last(), shortcut.last()});
  return graph.Add(name + ".relu2", Relu{}, {sum});
}

// Every layer, with nothing to fuse.
Graph Unfused() {
  Graph graph{{11, 13, 3}, {}};
  Builder add(&graph, kInput);
  add("relu0", Relu{});
  add("conv1", Conv2d{10, 3, 2, 1});
  add("bn1", BatchNorm2d{});
  add("pool1", MaxPool2d{});
  add("conv2", Conv2d{13, 2, 1, 0});
  add("bn2", BatchNorm2d{});
  add("relu2", Relu{});
  add("drop2", Dropout{0.2});
  add("relu3", Relu{});
  add("flatten", Flatten{});
  add("drop3", Dropout{0.3});
  add("fc1", Linear{kTestClasses});
  return graph;
}

// Only ReLUs fused into convolutions, and batch norm on the input.
Graph ReluConvolutions() {
  Graph graph{{6, 6, 5}, {}};
  Builder add(&graph, kInput);
  add("bn0", BatchNorm2d{});
  add("conv1", Conv2d{16, 3, 1, 1});
  add("relu1", Relu{});
  add("conv2", Conv2d{24, 3, 1, 1});
  add("relu2", Relu{});
  add("bn2", BatchNorm2d{});
  add("flatten", Flatten{});
  add("fc", Linear{kTestClasses});
  return graph;
}

// All kinds of pooling, alone and after ReLU, and groups.
Graph Pools() {
  Graph graph{{17, 15, 3}, {}};
  Builder add(&graph, kInput);
  add("conv0", Conv2d{12, 3, 1, 1});
  add("relu0", Relu{});
  add("pool0", MaxPool2d{.kernel = 3, .stride = 2, .padding = 1});
  add("conv1", Conv2d{.out_channels = 18, .kernel = 3, .padding = 1, .groups = 3});
  add("bn1", BatchNorm2d{});
  add("relu1", Relu{});
  add("pool1", MaxPool2d{.kernel = 3, .stride = 1});
  add("avg", AvgPool2d{.kernel = 2, .stride = 2});
  add("conv2", Conv2d{.out_channels = 18, .kernel = 3, .padding = 1, .groups = 18, .bias = false});
  add("relu6", Relu6{});
  add("flatten", Flatten{});
  add("fc", Linear{.out_features = kTestClasses, .bias = false});
  return graph;
}

// Convolution + ReLU at the end of branch and shortcut: both change their gradient in place. The
// branch comes after the shortcut, so that it is the first to contribute to their input's gradient.
Graph ActivatedBranches() {
  Graph graph{{6, 5, 3}, {}};
  const NodeId stem = graph.Add("stem", Conv2d{8, 3, 1, 1}, {kInput});
  Builder shortcut(&graph, stem);
  shortcut("shortcut", Conv2d{8, 1, 1, 0});
  shortcut("shortcut_relu", Relu{});
  Builder branch(&graph, stem);
  branch("branch", Conv2d{8, 3, 1, 1});
  branch("branch_relu", Relu{});
  const NodeId sum = graph.Add("add", Add{}, {branch.last(), shortcut.last()});
  EndWithClassifier(graph, sum);
  return graph;
}

// A block in the branch of a block, and a value with four consumers: its own convolution, a ReLU,
// and two sums, in one of which it is the first input.
Graph Nested() {
  Graph graph{{7, 7, 2}, {}};
  Builder stem(&graph, kInput);
  stem("stem", Conv2d{6, 3, 1, 1});
  const NodeId x = stem("stem_bn", BatchNorm2d{});
  Builder branch(&graph, x);
  branch("outer.conv", Convolution(6, 3, 1));
  const NodeId inner_input = branch("outer.bn", BatchNorm2d{});
  branch("inner.conv", Convolution(6, 1, 1));
  branch("inner.bn", BatchNorm2d{});
  const NodeId inner = graph.Add("inner.add", Add{}, {branch.last(), inner_input});
  const NodeId outer = graph.Add("outer.add", Add{}, {inner, x});
  const NodeId outer_relu6 = graph.Add("outer.relu6", Relu6{}, {outer});
  const NodeId relu = graph.Add("relu", Relu{}, {x});
  const NodeId first = graph.Add("x_first", Add{}, {x, relu});
  const NodeId sum = graph.Add("last_add", Add{}, {first, outer_relu6});
  const NodeId dropped = graph.Add("dropout", Dropout{0.25}, {sum});
  EndWithClassifier(graph, dropped);
  return graph;
}

// Batch norm at the end of branches: directly on the shortcut, with and without stochastic depth,
// and after a convolution with a bias; the shortcut ends in one, too. A pool gives the logits.
Graph NormalizedSums() {
  Graph graph{{6, 5, 3}, {}};
  Builder stem(&graph, kInput);
  stem("stem", Conv2d{6, 3, 1, 1});
  const NodeId x = stem("stem_relu6", Relu6{});
  NodeId last = graph.Add("itself.bn", BatchNorm2d{}, {x});
  last = graph.Add("itself.add", Add{}, {last, x});
  const NodeId y = graph.Add("itself.relu6", Relu6{}, {last});
  last = graph.Add("stochastic.bn", BatchNorm2d{}, {y});
  last = graph.Add("stochastic.drop", StochasticDepth{0.5}, {last});
  const NodeId z = graph.Add("stochastic.add", Add{}, {last, y});
  Builder branch(&graph, z);
  branch("branch.conv", Conv2d{8, 3, 2, 1});
  branch("branch.bn", BatchNorm2d{});
  Builder shortcut(&graph, z);
  shortcut("shortcut.conv", Conv2d{8, 1, 2});
  shortcut("shortcut.bn", BatchNorm2d{});
  last = graph.Add("add", Add{}, {branch.last(), shortcut.last()});
  Builder end(&graph, last);
  end("relu", Relu{});
  end("classes", Conv2d{kTestClasses});
  end("classes_bn", BatchNorm2d{});
  end("avgpool", AdaptiveAvgPool2d{});
  end("flatten", Flatten{});
  return graph;
}

// Sums of flat values; the logits are a sum.
Graph FlatSums() {
  Graph graph{{3, 3, 3}, {}};
  const NodeId flat = graph.Add("flatten", Flatten{}, {kInput});
  const NodeId a = graph.Add("a", Linear{kTestClasses}, {flat});
  const NodeId b = graph.Add("b", Linear{kTestClasses}, {a});
  const NodeId relu = graph.Add("relu", Relu{}, {a});
  const NodeId c = graph.Add("c", Linear{kTestClasses}, {relu});
  const NodeId sum = graph.Add("sum", Add{}, {b, a});
  graph.Add("logits", Add{}, {c, sum});
  return graph;
}

}  // namespace

void PrintTo(const TestGraph& value, std::ostream* os) { *os << value.name; }

Graph SmallResNet(double drop_probability) {
  Graph graph{{13, 17, 3}, {}};
  Builder stem(&graph, kInput);
  stem("conv1", Convolution(8, 7, 2));
  stem("bn1", BatchNorm2d{});
  stem("relu", Relu{});
  stem("maxpool", MaxPool2d{.kernel = 3, .stride = 2, .padding = 1});
  const NodeId first = AddBasicBlock(graph, stem.last(), "layer1.0", 8, 1, drop_probability);
  EndWithClassifier(graph, AddBasicBlock(graph, first, "layer2.0", 12, 2, drop_probability));
  return graph;
}

Graph SmallMobileNet() {
  Graph graph{{9, 11, 3}, {}};
  Builder add(&graph, kInput);
  add("features.0.0", Convolution(10, 3, 2));
  add("features.0.1", BatchNorm2d{});
  const NodeId input = add("features.0.2", Relu6{});
  add("expand.0", Convolution(20, 1, 1));
  add("expand.1", BatchNorm2d{});
  add("expand.2", Relu6{});
  add("depthwise.0", Convolution(20, 3, 1, 20));
  add("depthwise.1", BatchNorm2d{});
  add("depthwise.2", Relu6{});
  add("project.0", Convolution(10, 1, 1));
  add("project.1", BatchNorm2d{});
  Builder end(&graph, graph.Add("add", Add{}, {add.last(), input}));
  end("last.0", Convolution(16, 1, 1));
  end("last.1", BatchNorm2d{});
  end("last.2", Relu6{});
  EndWithClassifier(graph, end.last());
  return graph;
}

Graph StochasticBranches() {
  Graph graph{{6, 6, 2}, {}};
  NodeId x = graph.Add("stem", Conv2d{6, 3, 1, 1}, {kInput});
  for (const std::string name : {"first", "second", "third"}) {
    // Precedes the branch, which is therefore the first to contribute to the gradient of x.
    const NodeId shortcut = name == "first" ? x : graph.Add(name + ".shortcut", Conv2d{6}, {x});
    Builder branch(&graph, x);
    branch(name + ".conv1", Conv2d{8, 3, 1, 1});
    branch(name + ".relu", Relu{});
    branch(name + ".dropout", Dropout{0.2});
    branch(name + ".conv2", Conv2d{6, 3, 1, 1});
    branch(name + ".drop", StochasticDepth{0.4});
    x = graph.Add(name + ".add", Add{}, {branch.last(), shortcut});
  }
  EndWithClassifier(graph, x);
  return graph;
}

std::vector<TestGraph> TestGraphs() {
  return {{"unfused", Unfused()},
          {"relu_convolutions", ReluConvolutions()},
          {"pools", Pools()},
          {"small_resnet", SmallResNet()},
          {"small_resnet_with_stochastic_depth", SmallResNet(0.4)},
          {"small_mobilenet", SmallMobileNet()},
          {"activated_branches", ActivatedBranches()},
          {"stochastic_branches", StochasticBranches()},
          {"nested", Nested()},
          {"normalized_sums", NormalizedSums()},
          {"flat_sums", FlatSums()}};
}

}  // namespace muster::nn
