#include "trainer/graph/shapes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::nn {
namespace {

using testing::HasSubstr;

TEST(ShapesTest, FollowsAChain) {
  Graph graph{{13, 9, 3}, {}};
  NodeId last = graph.Add("conv", Conv2d{8, 3, 2, 1}, {kInput});
  last = graph.Add("pool", MaxPool2d{}, {last});
  last = graph.Add("flatten", Flatten{}, {last});
  graph.Add("fc", Linear{5}, {last});
  const auto shapes = InferShapes(graph);
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  EXPECT_EQ((*shapes)[0].image.height, 7);
  EXPECT_EQ((*shapes)[0].image.width, 5);
  EXPECT_EQ((*shapes)[1].image.height, 3);
  EXPECT_EQ((*shapes)[1].image.width, 2);
  EXPECT_EQ((*shapes)[2].elements(), 48);
  EXPECT_EQ((*shapes)[2].flattened_from.channels, 8);
  EXPECT_EQ((*shapes)[3].elements(), 5);
}

// Returns the error of a graph with one layer before a Flatten.
std::string ProblemWith(Layer layer, ImageShape input = {8, 8, 3}) {
  Graph graph{input, {}};
  const NodeId first = graph.Add("it", std::move(layer), {kInput});
  graph.Add("flatten", Flatten{}, {first});
  const auto shapes = InferShapes(graph);
  return shapes.ok() ? "" : std::string(shapes.status().message());
}

TEST(ShapesTest, NamesTheInvalidLayer) {
  EXPECT_EQ(ProblemWith(Relu{}), "");
  EXPECT_EQ(ProblemWith(Conv2d{.out_channels = 6, .groups = 3}), "");
  EXPECT_THAT(ProblemWith(Conv2d{.out_channels = 8, .groups = 3}),
              HasSubstr("layer it: 3 input and 8 output channels are not divisible by 3 groups"));
  EXPECT_THAT(ProblemWith(Conv2d{.out_channels = 8, .groups = 2}), HasSubstr("2 groups"));
  EXPECT_THAT(ProblemWith(Conv2d{.out_channels = 8, .groups = 0}), HasSubstr("layer it"));
  EXPECT_THAT(ProblemWith(Conv2d{8, 9, 1, 0}), HasSubstr("layer it: kernel size 9 is larger"));
  EXPECT_THAT(ProblemWith(Conv2d{0, 3, 1, 1}), HasSubstr("layer it"));
  EXPECT_THAT(ProblemWith(Conv2d{8, 3, 0, 1}), HasSubstr("layer it"));
  EXPECT_THAT(ProblemWith(Conv2d{int64_t{1} << 40, 3, 1, 1}), HasSubstr("layer it"));
  EXPECT_THAT(ProblemWith(MaxPool2d{}, {1, 8, 3}),
              HasSubstr("layer it: kernel size 2 is larger than the input size 1"));
  EXPECT_THAT(ProblemWith(MaxPool2d{3, 2, 2}), HasSubstr("layer it"));
  EXPECT_THAT(ProblemWith(MaxPool2d{16, 2, 0}, {32, 32, 1}),
              HasSubstr("MaxPool2d has kernel 16, stride 2, padding 0: kernel must be 1 to 15"));
  EXPECT_THAT(ProblemWith(AvgPool2d{9, 1}), HasSubstr("layer it: kernel size 9"));
  EXPECT_THAT(ProblemWith(AvgPool2d{2, 0}),
              HasSubstr("layer it: AvgPool2d has kernel 2, stride 0: "));
  EXPECT_THAT(ProblemWith(Add{}), HasSubstr("layer it: needs two inputs"));

  EXPECT_THAT(ProblemWith(Linear{4}), HasSubstr("layer it: Linear needs Flatten"));
  EXPECT_THAT(ProblemWith(Dropout{1.0}), HasSubstr("layer it"));
  EXPECT_THAT(ProblemWith(Dropout{-0.1}), HasSubstr("layer it"));
  EXPECT_THAT(ProblemWith(BatchNorm2d{.epsilon = 0}), HasSubstr("layer it"));
  EXPECT_NE(ProblemWith(Relu{}, {0, 8, 3}), "");
}

TEST(ShapesTest, Windows) {
  Graph graph{{13, 8, 6}, {}};
  NodeId last = graph.Add("conv", Conv2d{.out_channels = 9, .kernel = 5, .groups = 3}, {kInput});
  last = graph.Add("max", MaxPool2d{3, 2, 1}, {last});
  last = graph.Add("avg", AvgPool2d{2, 1}, {last});
  last = graph.Add("global", AdaptiveAvgPool2d{}, {last});
  graph.Add("flatten", Flatten{}, {last});
  const auto shapes = InferShapes(graph);
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  const int64_t expected[][2] = {{9, 4}, {5, 2}, {4, 1}, {1, 1}, {1, 1}};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ((*shapes)[i].image.height, expected[i][0]) << i;
    EXPECT_EQ((*shapes)[i].image.width, expected[i][1]) << i;
    EXPECT_EQ((*shapes)[i].image.channels, 9) << i;
  }
}

// Returns the error of a block whose branch and shortcut end in these layers, or of its sum.
std::string ProblemWithBlock(Layer branch, Layer shortcut) {
  Graph graph{{4, 4, 2}, {}};
  const NodeId a = graph.Add("branch", std::move(branch), {kInput});
  const NodeId b = graph.Add("shortcut", std::move(shortcut), {kInput});
  const NodeId sum = graph.Add("sum", Add{}, {a, b});
  graph.Add("flatten", Flatten{}, {sum});
  const auto shapes = InferShapes(graph);
  return shapes.ok() ? "" : std::string(shapes.status().message());
}

TEST(ShapesTest, SummandsMustHaveEqualShapes) {
  EXPECT_EQ(ProblemWithBlock(Conv2d{.out_channels = 2}, Relu{}), "");
  EXPECT_THAT(ProblemWithBlock(Conv2d{.out_channels = 3}, Relu{}),
              HasSubstr("layer sum: cannot add 4x4x3 to 4x4x2"));
  EXPECT_THAT(ProblemWithBlock(Conv2d{.out_channels = 2, .stride = 2}, Relu{}),
              HasSubstr("layer sum: cannot add 2x2x2 to 4x4x2"));
  EXPECT_THAT(ProblemWithBlock(Flatten{}, Relu{}), HasSubstr("layer sum: cannot add 32 to 4x4x2"));
}

TEST(ShapesTest, StochasticDepthMustEndABranch) {
  const auto problem = [](auto change) {
    Graph graph{{4, 4, 2}, {}};
    const NodeId branch = graph.Add("branch", Conv2d{2}, {kInput});
    const NodeId drop = graph.Add("drop", StochasticDepth{0.5}, {branch});
    const NodeId sum = graph.Add("sum", Add{}, {drop, kInput});
    graph.Add("flatten", Flatten{}, {sum});
    change(graph);
    const auto shapes = InferShapes(graph);
    return shapes.ok() ? "" : std::string(shapes.status().message());
  };
  EXPECT_EQ(problem([](Graph&) {}), "");
  EXPECT_THAT(problem([](Graph& graph) { graph.nodes[1].layer = StochasticDepth{1}; }),
              HasSubstr("layer drop: stochastic depth probability must be in [0, 1), not 1"));
  EXPECT_THAT(
      problem([](Graph& graph) { std::swap(graph.nodes[2].inputs[0], graph.nodes[2].inputs[1]); }),
      HasSubstr("layer drop: stochastic depth must be the first input of an Add"));
  EXPECT_THAT(problem([](Graph& graph) { graph.nodes[2].inputs[1] = 0; }),
              HasSubstr("layer drop: stochastic depth needs the end of a branch"));
  EXPECT_THAT(problem([](Graph& graph) { graph.nodes[1].inputs[0] = kInput; }),
              HasSubstr("layer branch: its output is not used"));
}

TEST(ShapesTest, RejectsInvalidGraphs) {
  Graph empty{{4, 4, 1}, {}};
  EXPECT_FALSE(InferShapes(empty).ok());

  Graph backwards{{4, 4, 1}, {}};
  backwards.Add("a", Flatten{}, {0});
  EXPECT_FALSE(InferShapes(backwards).ok());

  Graph nowhere{{4, 4, 1}, {}};
  nowhere.Add("a", Relu{}, {kInput});
  nowhere.Add("b", Flatten{}, {0});
  nowhere.Add("c", Flatten{}, {0});
  EXPECT_THAT(std::string(InferShapes(nowhere).status().message()),
              HasSubstr("layer b: its output is not used"));

  Graph image{{4, 4, 1}, {}};
  image.Add("a", Relu{}, {kInput});
  EXPECT_FALSE(InferShapes(image).ok());

  Graph same{{4, 4, 1}, {}};
  same.Add("a", Relu{}, {kInput});
  same.Add("a", Flatten{}, {0});
  EXPECT_THAT(std::string(InferShapes(same).status().message()),
              HasSubstr("layer a: name is not unique"));
}

}  // namespace
}  // namespace muster::nn
