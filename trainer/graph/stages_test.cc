// A model in stages gives bitwise the same logits, losses, gradients and running statistics as the
// whole model, wherever it is cut and in whatever order its stages process their micro-batches.
#include "trainer/graph/testing/stages.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/capturing_device.h"
#include "kernels/testing/guarded_device.h"
#include "trainer/graph/cut.h"
#include "trainer/graph/testing/graphs.h"
#include "trainer/models/model.h"

namespace muster::nn {
namespace {

using kernels::DataType;

constexpr uint32_t kSamples = 4;

// Micro-batches of several steps, so that different branches are dropped; one is smaller.
std::vector<MicroBatch> MicroBatches(size_t count) {
  std::vector<MicroBatch> batches;
  for (size_t i = 0; i < count; ++i) {
    batches.push_back(
        {.step = i, .first_sample = 3 * i, .samples = i == 1 ? kSamples - 1 : kSamples});
  }
  return batches;
}

// Stages that begin with node 0 and at each of the cuts, all with the same slots and order.
std::vector<StageUse> Uses(const std::vector<NodeId>& cuts, uint32_t slots,
                           const StageOrder& order) {
  std::vector<StageUse> uses = {{.begin = 0, .slots = slots, .order = order}};
  for (const NodeId cut : cuts) uses.push_back({.begin = cut, .slots = slots, .order = order});
  return uses;
}

// With 1F1B, a stage is as many micro-batches ahead as there are stages after it.
std::vector<StageUse> InTurn(const std::vector<NodeId>& cuts, size_t micro_batches) {
  std::vector<StageUse> uses = Uses(cuts, 1, {});
  for (size_t stage = 0; stage < uses.size(); ++stage) {
    const size_t ahead = std::min(uses.size() - stage, micro_batches);
    uses[stage].slots = static_cast<uint32_t>(ahead);
    uses[stage].order = OneForwardOneBackward(micro_batches, ahead);
  }
  return uses;
}

double EvaluationTolerance(const CompileOptions& options) {
  return options.precision.activations == DataType::kFloat32 ? 1e-5 : 0.06;
}

// Selects `cuts` cut points, spread as evenly as possible.
std::vector<NodeId> Spread(const Graph& graph, size_t cuts, size_t shift) {
  const std::vector<NodeId> points = CutPoints(graph);
  std::vector<NodeId> chosen;
  for (size_t i = 0; i < cuts; ++i) {
    chosen.push_back(points[std::min((i * points.size() + shift) / cuts, points.size() - 1)]);
  }
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

class StagesTest : public testing::TestWithParam<TestGraph> {
 protected:
  const Graph& graph() const { return GetParam().graph; }
};

TEST_P(StagesTest, MatchTheWholeModelAtEveryCut) {
  const CompileOptions options = {.max_batch = kSamples};
  const std::vector<MicroBatch> batches = MicroBatches(2);
  const Trained whole = TrainWhole(graph(), options, batches);
  const std::vector<NodeId> points = CutPoints(graph());
  ASSERT_FALSE(points.empty());
  for (const NodeId point : points) {
    SCOPED_TRACE(graph().nodes[point].name);
    ExpectSame(TrainStages(graph(), options, batches, Uses({point}, 1, Sequential(2))), whole,
               EvaluationTolerance(options));
  }
}

TEST_P(StagesTest, MatchTheWholeModelWithAStageBetweenTwoCuts) {
  const CompileOptions options = {.max_batch = kSamples};
  const std::vector<MicroBatch> batches = MicroBatches(2);
  const Trained whole = TrainWhole(graph(), options, batches);
  const std::vector<NodeId> points = CutPoints(graph());
  for (size_t i = 1; i < points.size(); ++i) {
    SCOPED_TRACE(graph().nodes[points[i]].name);
    ExpectSame(
        TrainStages(graph(), options, batches, Uses({points[i - 1], points[i]}, 1, Sequential(2))),
        whole, EvaluationTolerance(options));
  }
}

// The maximum number of stages; values pass through several.
TEST_P(StagesTest, MatchTheWholeModelInAnyOrder) {
  const std::vector<MicroBatch> batches = MicroBatches(5);
  const std::vector<NodeId> points = CutPoints(graph());
  for (const Precision precision :
       {Precision{}, PrecisionOf(2, DataType::kBfloat16), PrecisionOf(2, DataType::kFloat16)}) {
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << kernels::NameOf(precision.activations) << " recompute " << recompute);
      const CompileOptions options = {
          .max_batch = kSamples, .precision = precision, .recompute_activations = recompute};
      const double tolerance = EvaluationTolerance(options);
      const Trained whole = TrainWhole(graph(), options, batches);
      ExpectSame(TrainStages(graph(), options, batches, Uses(points, 5, AllForwardFirst(5))), whole,
                 tolerance);
      ExpectSame(TrainStages(graph(), options, batches, InTurn(points, 5)), whole, tolerance);
      ExpectSame(TrainStages(graph(), options, batches, InTurn(Spread(graph(), 2, 1), 5)), whole,
                 tolerance);
    }
  }
}

// A whole model has slots, too.
TEST_P(StagesTest, OneStageKeepsSeveralMicroBatches) {
  const CompileOptions options = {.max_batch = kSamples};
  const std::vector<MicroBatch> batches = MicroBatches(4);
  const Trained whole = TrainWhole(graph(), options, batches);
  ExpectSame(TrainStages(graph(), options, batches, Uses({}, 4, AllForwardFirst(4))), whole, 0);
  ExpectSame(TrainStages(graph(), options, batches, Uses({}, 3, OneForwardOneBackward(4, 3))),
             whole, 0);
}

// With evaluation-only plans, too, in which a batch norm has no operation of its own.
TEST_P(StagesTest, MatchTheWholeModelInEvaluation) {
  const CompileOptions options = {.max_batch = kSamples, .training = false};
  const Trained whole = TrainWhole(graph(), options, {});
  for (const NodeId point : CutPoints(graph())) {
    ExpectSame(TrainStages(graph(), options, {}, Uses({point}, 2, {})), whole,
               EvaluationTolerance(options));
  }
}

// On devices whose memory the process cannot access, and where captured steps skip nothing.
TEST_P(StagesTest, MatchOnOtherDevices) {
  const std::vector<MicroBatch> batches = MicroBatches(3);
  const std::vector<NodeId> cuts = Spread(graph(), 3, 0);
  for (kernels::Device* device : {&kernels::GuardedDevice(), &kernels::CapturingDevice()}) {
    const CompileOptions options = {.max_batch = kSamples, .device = device};
    ExpectSame(TrainStages(graph(), options, batches, InTurn(cuts, 3)),
               TrainWhole(graph(), options, batches), EvaluationTolerance(options));
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, StagesTest, testing::ValuesIn(TestGraphs()),
                         [](const auto& info) { return info.param.name; });

class ModelStagesTest : public testing::TestWithParam<std::string> {
 protected:
  static Graph Model(double dropout, double stochastic_depth) {
    v1::ModelSpec spec;
    spec.set_name(GetParam());
    if (GetParam() != "resnet18") spec.set_dropout(dropout);
    if (GetParam() != "small_cnn") spec.set_stochastic_depth(stochastic_depth);
    return *BuildModel(spec, {20, 20, 3}, kTestClasses);
  }
};

// In resnet18 and mobilenet_v2 some cuts are inside residual blocks, and one stage lies entirely in
// a block.
TEST_P(ModelStagesTest, MatchTheWholeModel) {
  std::vector<std::vector<std::string>> layers = {{"4"}, {"5", "9"}};
  if (GetParam() == "resnet18") {
    layers = {{"layer1.0.bn1", "layer1.0.bn2", "layer3.0.conv1"},
              {"layer2.0.conv2", "layer2.1.conv2", "layer4.1.bn1"}};
  } else if (GetParam() == "mobilenet_v2") {
    layers = {{"features.3.conv.1.0", "features.3.conv.2", "features.14.conv.0.0"},
              {"features.7.conv.0.0", "features.13.conv.1.0", "features.18.0"}};
  }
  const Graph graph = Model(0.3, 0);
  const std::vector<MicroBatch> batches = MicroBatches(3);
  const CompileOptions options = {.max_batch = kSamples};
  const Trained whole = TrainWhole(graph, options, batches);
  for (const std::vector<std::string>& names : layers) {
    std::vector<NodeId> cuts;
    for (const std::string& name : names) {
      const auto cut = FindCutPoint(graph, name);
      ASSERT_TRUE(cut.ok()) << cut.status();
      cuts.push_back(*cut);
    }
    ExpectSame(TrainStages(graph, options, batches, InTurn(cuts, 3)), whole,
               EvaluationTolerance(options));
  }
}

TEST_P(ModelStagesTest, MatchTheWholeModelWithStochasticDepth) {
  const std::vector<MicroBatch> batches = MicroBatches(3);
  const Graph graph = Model(0.3, 0.4);
  const CompileOptions options = {.max_batch = kSamples};
  ExpectSame(TrainStages(graph, options, batches, InTurn(Spread(graph, 3, 1), 3)),
             TrainWhole(graph, options, batches), EvaluationTolerance(options));
}

TEST_P(ModelStagesTest, MatchTheWholeModelInBfloat16) {
  const std::vector<MicroBatch> batches = MicroBatches(3);
  const Graph graph = Model(0.3, 0.4);
  const CompileOptions options = {.max_batch = kSamples,
                                  .precision = PrecisionOf(2, DataType::kBfloat16),
                                  .recompute_activations = true};
  ExpectSame(TrainStages(graph, options, batches, Uses(Spread(graph, 3, 1), 3, AllForwardFirst(3))),
             TrainWhole(graph, options, batches), EvaluationTolerance(options));
}

INSTANTIATE_TEST_SUITE_P(Models, ModelStagesTest,
                         testing::Values("small_cnn", "resnet18", "mobilenet_v2"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace muster::nn
