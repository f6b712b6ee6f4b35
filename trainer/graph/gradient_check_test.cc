// Checks gradients of whole networks and of single layers against central differences of a loss
// that is computed in double precision.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/graph/plan.h"
#include "trainer/graph/testing/double_network.h"
#include "trainer/graph/testing/graphs.h"
#include "trainer/graph/testing/trainer.h"

namespace muster::nn {
namespace {

// The layer between a convolution, whose gradient passes through the layer, and a linear layer.
TestGraph Alone(const std::string& name, Layer layer) {
  Graph graph{{7, 6, 3}, {}};
  NodeId last = graph.Add("before", Conv2d{6, 3, 1, 1}, {kInput});
  last = graph.Add("layer", std::move(layer), {last});
  last = graph.Add("flatten", Flatten{}, {last});
  graph.Add("after", Linear{kTestClasses}, {last});
  return {name, graph};
}

TestGraph AloneFlat(const std::string& name, Layer layer) {
  Graph graph{{3, 3, 3}, {}};
  NodeId last = graph.Add("flatten", Flatten{}, {kInput});
  last = graph.Add("before", Linear{11}, {last});
  last = graph.Add("layer", std::move(layer), {last});
  graph.Add("after", Linear{kTestClasses}, {last});
  return {name, graph};
}

// conv -> layer with two inputs; the other input is another convolution's output.
TestGraph AloneSum(const std::string& name, double drop_probability) {
  Graph graph{{5, 6, 3}, {}};
  const NodeId x = graph.Add("before", Conv2d{4, 3, 1, 1}, {kInput});
  NodeId branch = graph.Add("branch", Conv2d{4, 3, 1, 1}, {x});
  if (drop_probability > 0) {
    branch = graph.Add("drop", StochasticDepth{drop_probability}, {branch});
  }
  NodeId last = graph.Add("layer", Add{}, {branch, x});
  last = graph.Add("flatten", Flatten{}, {last});
  graph.Add("after", Linear{kTestClasses}, {last});
  return {name, graph};
}

std::vector<TestGraph> Cases() {
  std::vector<TestGraph> cases = TestGraphs();
  cases.push_back(Alone("conv2d", Conv2d{5, 3, 1, 1}));
  cases.push_back(Alone("conv2d_strided", Conv2d{.out_channels = 5, .kernel = 2, .stride = 2}));
  cases.push_back(Alone("conv2d_without_bias", Conv2d{.out_channels = 4, .bias = false}));
  cases.push_back(Alone("conv2d_groups", Conv2d{.out_channels = 4, .kernel = 3, .groups = 2}));
  cases.push_back(
      Alone("conv2d_depthwise",
            Conv2d{.out_channels = 6, .kernel = 3, .stride = 2, .padding = 1, .groups = 6}));
  cases.push_back(Alone("batch_norm2d", BatchNorm2d{.epsilon = 1e-3}));
  cases.push_back(Alone("relu", Relu{}));
  cases.push_back(Alone("relu6", Relu6{}));
  cases.push_back(Alone("max_pool2d", MaxPool2d{}));
  cases.push_back(Alone("max_pool2d_overlapping", MaxPool2d{3, 2, 1}));
  cases.push_back(Alone("max_pool2d_large_stride", MaxPool2d{2, 3, 0}));
  cases.push_back(Alone("avg_pool2d", AvgPool2d{3, 2}));
  cases.push_back(Alone("avg_pool2d_overlapping", AvgPool2d{3, 1}));
  cases.push_back(Alone("adaptive_avg_pool2d", AdaptiveAvgPool2d{}));
  cases.push_back(Alone("flatten", Flatten{}));
  cases.push_back(Alone("dropout", Dropout{0.4}));
  cases.push_back(AloneFlat("linear", Linear{9}));
  cases.push_back(AloneFlat("linear_without_bias", Linear{.out_features = 9, .bias = false}));
  cases.push_back(AloneFlat("relu_flat", Relu{}));
  cases.push_back(AloneSum("add", 0));
  cases.push_back(AloneSum("stochastic_depth", 0.5));
  return cases;
}

constexpr uint32_t kSamples = 3;
constexpr double kSmoothing = 0.1;
constexpr double kDistance = 1e-7;   // small, so that few values cross a kink of ReLU
constexpr size_t kElements = 8;      // number of elements checked per parameter
constexpr double kTolerance = 2e-5;  // relative to the largest slope of the network

double Largest(TestTrainer& trainer) {
  double largest = 0;
  for (size_t i = 0; i < trainer.elements(); ++i) {
    largest = std::max(largest, std::abs(double{trainer.gradients()[i]}));
  }
  return largest;
}

class GradientCheckTest : public testing::TestWithParam<TestGraph> {};

TEST_P(GradientCheckTest, GradientsMatchFiniteDifferences) {
  const Graph& graph = GetParam().graph;
  TestTrainer trainer(graph, {.max_batch = kSamples});
  TestTrainer reference(graph, {.max_batch = kSamples, .device = &kernels::ReferenceDevice()});
  const DoubleNetwork network(graph);
  // Batch norm weights other than one.
  std::mt19937 random(3);
  DoubleNetwork::Parameters parameters;
  for (const ParameterInfo& info : reference.plan().parameters()) {
    std::vector<float> values = reference.Parameter(info);
    for (float& value : values) value += std::normal_distribution<float>(0, 0.1f)(random);
    trainer.SetParameter(info, values);
    reference.SetParameter(info, values);
    parameters[info.name].assign(values.begin(), values.end());
  }
  for (const uint64_t step : {0, 1}) {
    const auto loss = [&] {
      return network.Loss(parameters, trainer.plan().input(), trainer.plan().labels(), kSamples,
                          kSmoothing, {.seed = 9, .step = step, .first_sample = 5});
    };
    const LossResult result = trainer.Gradients(step, 5, kSamples, 1, kSmoothing);
    const LossResult reference_result = reference.Gradients(step, 5, kSamples, 1, kSmoothing);
    EXPECT_NEAR(result.loss_sum, loss(), 1e-5 * loss());
    EXPECT_NEAR(reference_result.loss_sum, loss(), 1e-5 * loss());
    const double error = kTolerance * Largest(reference);
    for (const ParameterInfo& info : reference.plan().parameters()) {
      const std::vector<float> gradient = trainer.Gradient(info);
      const std::vector<float> reference_gradient = reference.Gradient(info);
      std::vector<double>& values = parameters[info.name];
      for (size_t n = 0; n < std::min(kElements, values.size()); ++n) {
        const size_t i = values.size() <= kElements ? n : random() % values.size();
        const double start = values[i];
        values[i] = start + kDistance;
        const double above = loss();
        values[i] = start - kDistance;
        const double slope = (above - loss()) / (2 * kDistance);
        values[i] = start;
        ASSERT_NEAR(reference_gradient[i], slope, error) << info.name << " at " << i;
        ASSERT_NEAR(gradient[i], slope, error) << info.name << " at " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, GradientCheckTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace muster::nn
