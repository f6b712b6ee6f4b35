#include "trainer/graph/fusion.h"

#include <string>

#include "gtest/gtest.h"

namespace muster::nn {
namespace {

using kernels::Activation;

// A residual block like resnet18's, with a convolution and batch norm in both branch and shortcut.
struct Block {
  Graph graph{{6, 6, 4}, {}};
  NodeId conv = graph.Add("conv", Conv2d{4, 3, 1, 1}, {kInput});
  NodeId bn = graph.Add("bn", BatchNorm2d{}, {conv});
  NodeId depth = graph.Add("depth", StochasticDepth{0.5}, {bn});
  NodeId down = graph.Add("down", Conv2d{4}, {kInput});
  NodeId down_bn = graph.Add("down_bn", BatchNorm2d{}, {down});
  NodeId add = graph.Add("add", Add{}, {depth, down_bn});
  NodeId relu = graph.Add("relu", Relu6{}, {add});
};

TEST(FusionTest, FusesTheSumIntoTheBatchNormOfTheBranch) {
  const Block block;
  const Fusions fusions(block.graph);
  const Fusions::Normalized after = fusions.AfterBatchNorm(block.bn);
  EXPECT_EQ(after.add, block.add);
  EXPECT_EQ(after.activation, Activation::kRelu6);
  EXPECT_EQ(after.pool, Fusions::kNone);
  EXPECT_EQ(after.last, block.relu);
  EXPECT_EQ(fusions.BatchNormBefore(block.add), block.bn);
  // Only one of the two: the shortcut's batch norm is not fused.
  EXPECT_EQ(fusions.AfterBatchNorm(block.down_bn).add, Fusions::kNone);
  EXPECT_EQ(fusions.AfterBatchNorm(block.down_bn).last, block.down_bn);
  // A branch that may be dropped leaves the shortcut's values to be added alone.
  EXPECT_EQ(fusions.ShortcutBatchNorm(block.add), Fusions::kNone);
  // In evaluation both are folded into their convolutions.
  EXPECT_EQ(fusions.FoldedBatchNorm(block.conv), block.bn);
  EXPECT_EQ(fusions.FoldsInto(block.bn), block.conv);
  EXPECT_EQ(fusions.FoldedBatchNorm(block.down), block.down_bn);
}

TEST(FusionTest, AppliesTheBatchNormOfAShortcutInTheSum) {
  Graph graph{{6, 6, 4}, {}};
  const NodeId conv = graph.Add("conv", Conv2d{4}, {kInput});
  const NodeId bn = graph.Add("bn", BatchNorm2d{}, {conv});
  const NodeId down = graph.Add("down", Conv2d{4}, {kInput});
  const NodeId down_bn = graph.Add("down_bn", BatchNorm2d{}, {down});
  const NodeId add = graph.Add("add", Add{}, {bn, down_bn});
  EXPECT_EQ(Fusions(graph).ShortcutBatchNorm(add), down_bn);
  EXPECT_EQ(Fusions(graph).AppliedBySum(down_bn), add);
  EXPECT_EQ(Fusions(graph).AppliedBySum(bn), Fusions::kNone);
  // Another consumer needs the values.
  graph.Add("relu", Relu{}, {down_bn});
  EXPECT_EQ(Fusions(graph).ShortcutBatchNorm(add), Fusions::kNone);
  EXPECT_EQ(Fusions(graph).AppliedBySum(down_bn), Fusions::kNone);
}

TEST(FusionTest, FindsShortcutsThatSkipPixels) {
  Graph graph{{6, 6, 4}, {}};
  const NodeId stem = graph.Add("stem", Conv2d{4}, {kInput});
  const NodeId conv = graph.Add("conv", Conv2d{.out_channels = 4, .stride = 1}, {stem});
  const NodeId down = graph.Add("down", Conv2d{.out_channels = 4, .stride = 2}, {stem});
  EXPECT_TRUE(Fusions(graph).SkipsPixels(down));
  EXPECT_FALSE(Fusions(graph).SkipsPixels(conv));
  // Both skip the same pixels, whose gradient must nevertheless be written.
  graph.nodes[conv].layer = Conv2d{.out_channels = 4, .stride = 3};
  EXPECT_FALSE(Fusions(graph).SkipsPixels(down));
  // A kernel of 3 also reads the pixels between.
  graph.nodes[conv].layer = Conv2d{.out_channels = 4, .kernel = 3, .stride = 2, .padding = 1};
  EXPECT_TRUE(Fusions(graph).SkipsPixels(down));
  graph.nodes[down].layer = Conv2d{.out_channels = 4, .kernel = 3, .stride = 2, .padding = 1};
  EXPECT_FALSE(Fusions(graph).SkipsPixels(down));
  graph.nodes[down].layer = Conv2d{.out_channels = 4, .stride = 2};
  graph.Add("relu", Relu{}, {stem});
  EXPECT_FALSE(Fusions(graph).SkipsPixels(down));
}

TEST(FusionTest, DoesNotFuseValuesWithOtherConsumers) {
  Block block;
  // Other consumers of the branch's batch norm (instead of stochastic depth, which allows no
  // other), the convolutions and the sum.
  block.graph.nodes[block.add].inputs[0] = block.bn;
  block.graph.nodes[block.depth] = {"other_bn", Relu{}, {block.bn}};
  block.graph.Add("other_conv", Relu{}, {block.conv});
  block.graph.Add("other_add", Relu{}, {block.add});
  const Fusions fusions(block.graph);
  EXPECT_EQ(fusions.AfterBatchNorm(block.bn).add, Fusions::kNone);
  EXPECT_EQ(fusions.AfterBatchNorm(block.bn).activation, Activation::kNone);
  EXPECT_EQ(fusions.BatchNormBefore(block.add), Fusions::kNone);
  EXPECT_EQ(fusions.AfterAdd(block.add).activation, Activation::kNone);
  EXPECT_EQ(fusions.FoldedBatchNorm(block.conv), Fusions::kNone);
  EXPECT_EQ(fusions.FoldsInto(block.bn), Fusions::kNone);
}

TEST(FusionTest, FusesReluIntoThePoolAfterIt) {
  for (const bool batch_norm : {false, true}) {
    for (const int64_t kernel : {2, 3}) {
      Graph graph{{8, 8, 3}, {}};
      const NodeId conv = graph.Add("conv", Conv2d{4}, {kInput});
      const NodeId bn = batch_norm ? graph.Add("bn", BatchNorm2d{}, {conv}) : conv;
      const NodeId relu = graph.Add("relu", Relu{}, {bn});
      const NodeId pool = graph.Add("pool", MaxPool2d{.kernel = kernel, .stride = 2}, {relu});
      const Fusions fusions(graph);
      EXPECT_EQ(fusions.PoolAfter(relu), pool);
      if (!batch_norm) {
        EXPECT_EQ(fusions.AfterConvolution(conv).last, conv);
        continue;
      }
      // On every device only the 2x2 pooling is fused into the batch norm, which then remains a
      // separate pass in evaluation.
      const Fusions::Normalized after = fusions.AfterBatchNorm(bn);
      EXPECT_EQ(after.activation, Activation::kRelu);
      EXPECT_EQ(after.pool, kernel == 2 ? pool : Fusions::kNone);
      EXPECT_EQ(fusions.AfterBatchNorm(bn, Fusions::Pools::kAll).pool, pool);
      EXPECT_EQ(fusions.AfterBatchNorm(bn, Fusions::Pools::kAll).last, pool);
      EXPECT_EQ(after.last, kernel == 2 ? pool : relu);
      EXPECT_EQ(fusions.FoldedBatchNorm(conv), kernel == 2 ? Fusions::kNone : bn);
    }
  }
}

TEST(FusionTest, FusesActivationsIntoConvolutions) {
  Graph graph{{8, 8, 3}, {}};
  const NodeId conv = graph.Add("conv", Conv2d{4}, {kInput});
  const NodeId relu6 = graph.Add("relu6", Relu6{}, {conv});
  const NodeId flatten = graph.Add("flatten", Flatten{}, {relu6});
  const NodeId linear = graph.Add("linear", Linear{5}, {flatten});
  const NodeId relu = graph.Add("relu", Relu{}, {linear});
  const NodeId last = graph.Add("last", Linear{5}, {relu});
  const Fusions fusions(graph);
  EXPECT_EQ(fusions.AfterConvolution(conv).activation, Activation::kRelu6);
  EXPECT_EQ(fusions.AfterConvolution(conv).last, relu6);
  EXPECT_EQ(fusions.AfterConvolution(linear).activation, Activation::kRelu);
  EXPECT_EQ(fusions.AfterConvolution(linear).last, relu);
  EXPECT_EQ(fusions.AfterConvolution(last).activation, Activation::kNone);
  EXPECT_EQ(fusions.AfterConvolution(last).last, last);
}

// A sum whose shortcut is the normalised value: the first input is the branch.
TEST(FusionTest, FusesOnlyTheFirstInputOfASum) {
  Graph graph{{8, 8, 4}, {}};
  const NodeId bn = graph.Add("bn", BatchNorm2d{}, {kInput});
  const NodeId add = graph.Add("add", Add{}, {kInput, bn});
  const Fusions fusions(graph);
  EXPECT_EQ(fusions.AfterBatchNorm(bn).add, Fusions::kNone);
  EXPECT_EQ(fusions.BatchNormBefore(add), Fusions::kNone);
  // The value before it is not a convolution's output.
  EXPECT_EQ(fusions.FoldsInto(bn), Fusions::kNone);
}

}  // namespace
}  // namespace muster::nn
