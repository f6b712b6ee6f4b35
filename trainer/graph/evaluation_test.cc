// Compares batch norm in evaluation, where it is folded into the convolution before it, with the
// separate pass of training: with the statistics of the batch itself both are the same function.
#include <cmath>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/graph/compiled_plan.h"
#include "trainer/graph/shapes.h"
#include "trainer/graph/testing/graphs.h"
#include "trainer/graph/testing/trainer.h"

namespace muster::nn {
namespace {

using kernels::DataType;
using testing::ElementsAre;

constexpr uint32_t kSamples = 6;

// Deterministic graphs with batch norm, whose running statistics are those of the last batch.
std::vector<TestGraph> Cases() {
  std::vector<TestGraph> cases;
  for (TestGraph& graph : TestGraphs()) {
    bool normalized = false;
    for (Node& node : graph.graph.nodes) {
      if (auto* const norm = std::get_if<BatchNorm2d>(&node.layer)) {
        norm->momentum = 1;
        normalized = true;
      }
      if (auto* const dropout = std::get_if<Dropout>(&node.layer)) dropout->probability = 0;
      if (auto* const depth = std::get_if<StochasticDepth>(&node.layer)) depth->probability = 0;
    }
    if (normalized) cases.push_back(std::move(graph));
  }
  return cases;
}

class EvaluationTest : public testing::TestWithParam<TestGraph> {
 protected:
  const Graph& graph() const { return GetParam().graph; }

  // Sets parameters that differ between channels and trains one step, then converts the running
  // variances to the biased ones that training normalises with. Returns the step's logits.
  std::vector<float> TrainOneStep(TestTrainer& trainer) const {
    for (const ParameterInfo& info : trainer.plan().parameters()) {
      std::vector<float> values = trainer.Parameter(info);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] += 0.2f * std::sin(static_cast<float>(i));
      }
      trainer.SetParameter(info, values);
    }
    trainer.Fill(0, 0, kSamples);
    trainer.plan().Forward(kSamples, true, {});
    const std::vector<ValueShape> shapes = *InferShapes(graph());
    for (const ParameterInfo& info : trainer.plan().buffers()) {
      for (size_t i = 0; i < graph().nodes.size(); ++i) {
        if (info.name != graph().nodes[i].name + ".running_var") continue;
        const auto pixels =
            static_cast<float>(kSamples * shapes[i].image.height * shapes[i].image.width);
        std::vector<float> values = trainer.Buffer(info);
        for (float& value : values) value *= (pixels - 1) / pixels;
        trainer.SetParameter(info, values);
      }
    }
    return {trainer.plan().logits(kSamples).begin(), trainer.plan().logits(kSamples).end()};
  }

  // Evaluates in the training plan, and in an evaluation-only plan with the same parameters.
  void ExpectEvaluationGives(const std::vector<float>& logits, TestTrainer& trainer,
                             CompileOptions options, double tolerance) const {
    trainer.plan().Forward(kSamples, false, {});
    ExpectClose(trainer.plan().logits(kSamples), logits, tolerance, "logits of the training plan");
    options.training = false;
    TestTrainer evaluation(graph(), options);
    for (const ParameterInfo& info : trainer.plan().parameters()) {
      evaluation.SetParameter(info, trainer.Parameter(info));
    }
    for (const ParameterInfo& info : trainer.plan().buffers()) {
      evaluation.SetParameter(info, trainer.Buffer(info));
    }
    evaluation.Fill(0, 0, kSamples);
    evaluation.plan().Forward(kSamples, false, {});
    ExpectClose(evaluation.plan().logits(kSamples), logits, tolerance, "logits of its own plan");
    EXPECT_LT(evaluation.plan().arena_bytes(), trainer.plan().arena_bytes());
  }
};

TEST_P(EvaluationTest, MatchesTrainingWithTheSameStatistics) {
  for (const bool reference : {false, true}) {
    const CompileOptions options = {
        .max_batch = kSamples,
        .device = reference ? &kernels::ReferenceDevice() : &kernels::CpuDevice()};
    TestTrainer trainer(graph(), options);
    ExpectEvaluationGives(TrainOneStep(trainer), trainer, options, 2e-5);
  }
}

// Training rounds each convolution's output and computes statistics of rounded values; evaluation
// rounds only the output of batch norm.
TEST_P(EvaluationTest, MatchesTrainingApproximatelyInLowPrecision) {
  for (const DataType low : {DataType::kBfloat16, DataType::kFloat16}) {
    const CompileOptions options = {.max_batch = kSamples,
                                    .device = &kernels::ReferenceDevice(),
                                    .precision = PrecisionOf(2, low)};
    TestTrainer trainer(graph(), options);
    ExpectEvaluationGives(TrainOneStep(trainer), trainer, options,
                          low == DataType::kBfloat16 ? 0.05 : 0.006);
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, EvaluationTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

std::vector<std::string> Kinds(const Plan& plan) {
  std::vector<std::string> kinds;
  for (const OperationDescription& operation : plan.Describe()) kinds.push_back(operation.kind);
  return kinds;
}

TEST(EvaluationPlanTest, FoldsBatchNormIntoConvolutions) {
  const auto resnet = Compile(SmallResNet(0.5), {.max_batch = kSamples, .training = false});
  ASSERT_TRUE(resnet.ok()) << resnet.status();
  EXPECT_THAT(
      Kinds(**resnet),
      ElementsAre("conv2d + batch_norm2d + relu", "max_pool2d", "conv2d + batch_norm2d + relu",
                  "conv2d + batch_norm2d + stochastic_depth + add + relu",
                  "conv2d + batch_norm2d + relu", "conv2d + batch_norm2d",
                  "conv2d + batch_norm2d + stochastic_depth + add + relu", "avg_pool2d", "linear"));
  const auto mobilenet = Compile(SmallMobileNet(), {.max_batch = kSamples, .training = false});
  ASSERT_TRUE(mobilenet.ok()) << mobilenet.status();
  EXPECT_THAT(Kinds(**mobilenet),
              ElementsAre("conv2d + batch_norm2d + relu6", "conv2d + batch_norm2d + relu6",
                          "conv2d + batch_norm2d + relu6", "conv2d + batch_norm2d + add",
                          "conv2d + batch_norm2d + relu6", "avg_pool2d", "linear"));
  size_t parameters = 0;
  for (const OperationDescription& operation : (*mobilenet)->Describe()) {
    parameters += operation.parameters;
    EXPECT_EQ(operation.evaluation, "");
    EXPECT_EQ(operation.recomputed, "");
  }
  size_t expected = 0;
  for (const ParameterInfo& info : (*mobilenet)->parameters()) expected += CanonicalElements(info);
  EXPECT_EQ(parameters, expected);
}

// Plans for training and plans for evaluation only may share a checkpoint by names; both order the
// flat arrays as the graph does.
TEST(EvaluationPlanTest, OrdersParametersAsInTheGraph) {
  const Graph graph = SmallResNet();
  const auto names = [&](bool training) {
    std::vector<std::string> names;
    const auto plan = Compile(graph, {.max_batch = kSamples, .training = training});
    for (const ParameterInfo& info : (*plan)->parameters()) names.push_back(info.name);
    return names;
  };
  EXPECT_EQ(names(true), names(false));
  EXPECT_THAT(names(true),
              ElementsAre("conv1.weight", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight",
                          "layer1.0.bn1.weight", "layer1.0.bn1.bias", "layer1.0.conv2.weight",
                          "layer1.0.bn2.weight", "layer1.0.bn2.bias", "layer2.0.conv1.weight",
                          "layer2.0.bn1.weight", "layer2.0.bn1.bias", "layer2.0.conv2.weight",
                          "layer2.0.bn2.weight", "layer2.0.bn2.bias",
                          "layer2.0.downsample.0.weight", "layer2.0.downsample.1.weight",
                          "layer2.0.downsample.1.bias", "fc.weight", "fc.bias"));
}

}  // namespace
}  // namespace muster::nn
