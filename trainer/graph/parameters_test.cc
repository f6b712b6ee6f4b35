#include "trainer/graph/parameters.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/graph/testing/trainer.h"

namespace muster::nn {
namespace {

using testing::Each;

// A convolution, a batch norm and two linear layers; each test examines one parameter.
Graph Layers(const Conv2d& conv, const BatchNorm2d& norm, const Linear& linear) {
  Graph graph{{3, 3, conv.groups == 1 ? 16 : conv.groups}, {}};
  NodeId last = graph.Add("conv", conv, {kInput});
  last = graph.Add("norm", norm, {last});
  last = graph.Add("flatten", Flatten{}, {last});
  graph.Add("linear", linear, {last});
  return graph;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
  double kurtosis = 0;  // 3 of a normal distribution, 1.8 of a uniform one
  double largest = 0;
  size_t count = 0;
};

Moments MomentsOf(const std::vector<float>& values) {
  Moments moments{.count = values.size()};
  const double count = static_cast<double>(values.size());
  for (const float value : values) moments.mean += double{value} / count;
  double squares = 0;
  double fourths = 0;
  for (const float value : values) {
    const double distance = double{value} - moments.mean;
    squares += distance * distance / count;
    fourths += std::pow(distance, 4) / count;
    moments.largest = std::max(moments.largest, std::abs(double{value}));
  }
  moments.deviation = std::sqrt(squares);
  moments.kurtosis = fourths / (squares * squares);
  return moments;
}

class InitializationTest : public testing::Test {
 protected:
  void Compile(const Conv2d& conv, const BatchNorm2d& norm, const Linear& linear) {
    trainer_ = std::make_unique<TestTrainer>(
        Layers(conv, norm, linear),
        CompileOptions{.max_batch = 1, .device = &kernels::ReferenceDevice()});
  }
  std::vector<float> Values(const std::string& name) const {
    return trainer_->Parameter(trainer_->Info(name));
  }
  Moments Of(const std::string& name) const { return MomentsOf(Values(name)); }

  std::unique_ptr<TestTrainer> trainer_;
};

TEST_F(InitializationTest, PyTorchDefaultIsUniformWithFanInBound) {
  Compile({.out_channels = 128, .kernel = 3}, {}, {.out_features = 200});
  for (const auto& [name, fan_in] : {std::pair<std::string, double>{"conv", 16 * 9},
                                     std::pair<std::string, double>{"linear", 128}}) {
    const double bound = 1 / std::sqrt(fan_in);
    const Moments weight = Of(name + ".weight");
    EXPECT_LE(weight.largest, bound);
    EXPECT_GT(weight.largest, 0.99 * bound);
    EXPECT_NEAR(weight.deviation, bound / std::sqrt(3.0), 0.01 * bound);
    EXPECT_NEAR(weight.kurtosis, 1.8, 0.05);
    const Moments bias = Of(name + ".bias");
    EXPECT_LE(bias.largest, bound);
    EXPECT_GT(bias.deviation, 0.4 * bound);
  }
  EXPECT_THAT(Values("norm.weight"), Each(1.0f));
  EXPECT_THAT(Values("norm.bias"), Each(0.0f));
  EXPECT_THAT(trainer_->Buffer(trainer_->plan().buffers()[0]), Each(0.0f));
  EXPECT_THAT(trainer_->Buffer(trainer_->plan().buffers()[1]), Each(1.0f));
}

TEST_F(InitializationTest, NormalDistributionsHaveTheirDeviation) {
  Compile(
      {.out_channels = 128, .kernel = 3, .initialization = Initialization::kKaimingNormalFanOut},
      {.zero_weight = true},
      {.out_features = 200, .initialization = Initialization::kNormal, .standard_deviation = 0.01});
  for (const auto& [name, deviation] :
       {std::pair<std::string, double>{"conv", std::sqrt(2.0 / (128 * 9))},
        std::pair<std::string, double>{"linear", 0.01}}) {
    const Moments weight = Of(name + ".weight");
    const double error = deviation / std::sqrt(static_cast<double>(weight.count));
    EXPECT_NEAR(weight.mean, 0, 4 * error);
    EXPECT_NEAR(weight.deviation, deviation, 4 * error);
    EXPECT_NEAR(weight.kurtosis, 3, 0.2);
    EXPECT_GT(weight.largest, 3.3 * deviation);
    EXPECT_LT(weight.largest, 7 * deviation);
    EXPECT_THAT(Values(name + ".bias"), Each(0.0f));
  }
  EXPECT_THAT(Values("norm.weight"), Each(0.0f));
  // Adjacent values come from the same pair of uniform numbers.
  const std::vector<float> weight = Values("linear.weight");
  double product = 0;
  for (size_t i = 0; i + 1 < weight.size(); i += 2) product += double{weight[i]} * weight[i + 1];
  product /= static_cast<double>(weight.size() / 2) * 0.01 * 0.01;
  EXPECT_NEAR(product, 0, 4 / std::sqrt(static_cast<double>(weight.size() / 2)));
}

// torch.nn.init computes fan out from all output channels whatever the groups, but fan in from the
// group only.
TEST_F(InitializationTest, UsesPyTorchsFansForDepthwiseConvolutions) {
  Conv2d conv = {.out_channels = 1024, .kernel = 3, .groups = 1024};
  Compile(conv, {}, {});
  EXPECT_LE(Of("conv.weight").largest, 1.0 / 3);
  EXPECT_GT(Of("conv.weight").largest, 0.99 / 3);
  conv.initialization = Initialization::kKaimingNormalFanOut;
  Compile(conv, {}, {});
  const double deviation = std::sqrt(2.0 / (1024 * 9));
  EXPECT_NEAR(Of("conv.weight").deviation, deviation, 0.05 * deviation);
}

TEST_F(InitializationTest, DependsOnlyOnSeedAndName) {
  const Conv2d normal = {
      .out_channels = 5, .kernel = 3, .initialization = Initialization::kKaimingNormalFanOut};
  Compile(normal, {}, {.out_features = 3});
  const std::vector<float> conv = Values("conv.weight");
  const std::vector<float> linear = Values("linear.weight");
  TestTrainer larger(Layers(normal, {}, {.out_features = 3}), {.max_batch = 7});
  EXPECT_EQ(larger.Parameter(larger.Info("conv.weight")), conv);
  EXPECT_EQ(larger.Parameter(larger.Info("linear.weight")), linear);
  larger.plan().Initialize(6);
  EXPECT_NE(larger.Parameter(larger.Info("conv.weight")), conv);
  EXPECT_NE(larger.Parameter(larger.Info("linear.weight")), linear);
}

}  // namespace
}  // namespace muster::nn
