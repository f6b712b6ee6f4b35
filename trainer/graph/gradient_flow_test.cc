#include "trainer/graph/gradient_flow.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/graph/lowering.h"
#include "trainer/graph/testing/graphs.h"

namespace muster::nn {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Program Lowered(const Graph& graph) {
  auto program = Lower(graph, {.max_batch = 2});
  EXPECT_TRUE(program.ok()) << program.status();
  return *std::move(program);
}

// "operation.input" of each contribution that `choose` selects, in the order of backward.
template <typename Choose>
std::vector<std::string> Contributions(const Program& program, const Choose& choose) {
  const GradientFlow flow = PlanGradients(program);
  std::vector<std::string> names;
  for (size_t i = program.operations.size(); i-- > 0;) {
    for (const Contribution& contribution : flow.contributions[i]) {
      if (choose(contribution)) {
        names.push_back(program.operations[i]->name() + "." + std::to_string(contribution.input));
      }
    }
  }
  return names;
}

std::vector<std::string> InPlace(const Graph& graph) {
  return Contributions(Lowered(graph), [](const Contribution& c) { return c.in_place; });
}

std::vector<std::string> Added(const Graph& graph) {
  return Contributions(Lowered(graph), [](const Contribution& c) { return !c.first; });
}

// x -> inner -> branch (-> stochastic depth) -> sum <- x
Graph Residual(double drop_probability) {
  Graph graph{{4, 4, 2}, {}};
  const NodeId x = graph.Add("x", Conv2d{3}, {kInput});
  const NodeId inner = graph.Add("inner", Conv2d{3}, {x});
  NodeId branch = graph.Add("branch", Conv2d{3}, {inner});
  if (drop_probability > 0) {
    branch = graph.Add("drop", StochasticDepth{drop_probability}, {branch});
  }
  NodeId last = graph.Add("sum", Add{}, {branch, x});
  last = graph.Add("flatten", Flatten{}, {last});
  graph.Add("fc", Linear{3}, {last});
  return graph;
}

TEST(GradientFlowTest, SharesTheSumsGradientInAResidualBlock) {
  EXPECT_THAT(InPlace(Residual(0)), ElementsAre("sum.0", "sum.1"));
  EXPECT_THAT(Added(Residual(0)), ElementsAre("inner.0"));
}

// A branch that is scaled needs its own gradient.
TEST(GradientFlowTest, DoesNotShareTheGradientOfAStochasticBranch) {
  EXPECT_THAT(InPlace(Residual(0.5)), ElementsAre("sum.1"));
}

// On devices whose kernels add the pixels that a strided shortcut reads; see Operation.
TEST(GradientFlowTest, DefersTheStridedGradientOfAShortcut) {
  const auto program =
      Lower(SmallResNet(), {.max_batch = 2, .device = &kernels::ReferenceDevice()});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(Contributions(*program, [](const Contribution& c) { return c.deferred; }),
              ElementsAre("layer2.0.downsample.0.0", "layer1.0.conv1.0"));
  EXPECT_THAT(Contributions(*program, [](const Contribution& c) { return c.stride == 2; }),
              ElementsAre("layer2.0.downsample.0.0"));
}

// A batch norm that ends the branch is fused with the sum.
TEST(GradientFlowTest, SharesTheGradientOfANormalizedSumWithTheShortcut) {
  for (const double drop_probability : {0.0, 0.5}) {
    EXPECT_THAT(InPlace(SmallResNet(drop_probability)),
                ElementsAre("layer2.0.bn2..layer2.0.relu2.1", "layer1.0.bn2..layer1.0.relu2.1"));
  }
  EXPECT_THAT(Added(SmallResNet()), ElementsAre("layer2.0.conv1.0", "layer1.0.conv1.0"));
  EXPECT_THAT(InPlace(SmallMobileNet()), ElementsAre("project.1..add.1"));
}

// bn(x) + x: one operation uses x twice.
TEST(GradientFlowTest, AddsBothGradientsOfANormalizedValuePlusItsInput) {
  Graph graph{{4, 4, 2}, {}};
  const NodeId x = graph.Add("x", Conv2d{3}, {kInput});
  const NodeId bn = graph.Add("bn", BatchNorm2d{}, {x});
  NodeId last = graph.Add("sum", Add{}, {bn, x});
  last = graph.Add("flatten", Flatten{}, {last});
  graph.Add("fc", Linear{3}, {last});
  EXPECT_THAT(InPlace(graph), IsEmpty());
  EXPECT_THAT(Added(graph), ElementsAre("bn..sum.1"));
}

TEST(GradientFlowTest, AddsNothingInAChain) {
  Graph graph{{4, 4, 2}, {}};
  NodeId last = graph.Add("conv", Conv2d{3}, {kInput});
  last = graph.Add("bn", BatchNorm2d{}, {last});
  last = graph.Add("drop", Dropout{0.5}, {last});
  last = graph.Add("flatten", Flatten{}, {last});
  graph.Add("fc", Linear{3}, {last});
  EXPECT_THAT(Added(graph), IsEmpty());
  EXPECT_THAT(InPlace(graph), ElementsAre("drop.0"));
}

// x -> a -> relu -> sum <- x: the convolution's ReLU would change the gradient in place while the
// shortcut still needs it.
TEST(GradientFlowTest, DoesNotShareGradientsWithAnActivationInABranch) {
  Graph graph{{4, 4, 2}, {}};
  const NodeId x = graph.Add("x", Conv2d{3}, {kInput});
  const NodeId a = graph.Add("a", Conv2d{3}, {x});
  const NodeId relu = graph.Add("relu", Relu{}, {a});
  NodeId last = graph.Add("sum", Add{}, {relu, x});
  last = graph.Add("flatten", Flatten{}, {last});
  graph.Add("fc", Linear{3}, {last});
  EXPECT_THAT(InPlace(graph), ElementsAre("sum.1"));
}

// The sum is not the first to contribute to the gradient of x, so its contribution is added.
TEST(GradientFlowTest, SharesMemoryOnlyForTheFirstContribution) {
  Graph graph{{4, 4, 2}, {}};
  const NodeId x = graph.Add("x", Conv2d{3}, {kInput});
  const NodeId branch = graph.Add("branch", Conv2d{3}, {x});
  const NodeId sum = graph.Add("sum", Add{}, {branch, x});
  const NodeId late = graph.Add("late", Conv2d{3}, {x});
  NodeId last = graph.Add("last", Add{}, {sum, late});
  last = graph.Add("flatten", Flatten{}, {last});
  graph.Add("fc", Linear{3}, {last});
  EXPECT_THAT(InPlace(graph), ElementsAre("last.0", "last.1", "sum.0"));
  EXPECT_THAT(Added(graph), ElementsAre("sum.1", "branch.0"));
}

}  // namespace
}  // namespace muster::nn
