#include "worker/nn/shapes.h"

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

// A graph of one layer before a Flatten, and what is said of it.
std::string ProblemWith(Layer layer, ImageShape input = {8, 8, 3}) {
  Graph graph{input, {}};
  const NodeId first = graph.Add("it", std::move(layer), {kInput});
  graph.Add("flatten", Flatten{}, {first});
  const auto shapes = InferShapes(graph);
  return shapes.ok() ? "" : std::string(shapes.status().message());
}

TEST(ShapesTest, NamesTheLayerThatDoesNotFit) {
  EXPECT_EQ(ProblemWith(Relu{}), "");
  EXPECT_THAT(ProblemWith(Conv2d{8, 9, 1, 0}), HasSubstr("layer it: a kernel of 9 is larger"));
  EXPECT_THAT(ProblemWith(Conv2d{0, 3, 1, 1}), HasSubstr("layer it"));
  EXPECT_THAT(ProblemWith(Conv2d{8, 3, 0, 1}), HasSubstr("layer it"));
  EXPECT_THAT(ProblemWith(Conv2d{int64_t{1} << 40, 3, 1, 1}), HasSubstr("layer it"));
  EXPECT_THAT(ProblemWith(MaxPool2d{}, {1, 8, 3}), HasSubstr("layer it: nothing to pool in 1x8"));
  EXPECT_THAT(ProblemWith(Linear{4}), HasSubstr("layer it: Linear needs Flatten"));
  EXPECT_THAT(ProblemWith(Dropout{1.0}), HasSubstr("layer it"));
  EXPECT_THAT(ProblemWith(Dropout{-0.1}), HasSubstr("layer it"));
  EXPECT_THAT(ProblemWith(BatchNorm2d{.epsilon = 0}), HasSubstr("layer it"));
  EXPECT_NE(ProblemWith(Relu{}, {0, 8, 3}), "");
}

TEST(ShapesTest, RefusesGraphsThatAreNoChain) {
  Graph empty{{4, 4, 1}, {}};
  EXPECT_FALSE(InferShapes(empty).ok());

  Graph backwards{{4, 4, 1}, {}};
  backwards.Add("a", Flatten{}, {0});
  EXPECT_FALSE(InferShapes(backwards).ok());

  Graph twice{{4, 4, 1}, {}};
  twice.Add("a", Relu{}, {kInput});
  twice.Add("b", Flatten{}, {0});
  twice.Add("c", Flatten{}, {0});
  EXPECT_THAT(InferShapes(twice).status().message(), HasSubstr("already goes to another"));

  Graph image{{4, 4, 1}, {}};
  image.Add("a", Relu{}, {kInput});
  EXPECT_FALSE(InferShapes(image).ok());
}

}  // namespace
}  // namespace muster::nn
