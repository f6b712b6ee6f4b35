#include "trainer/graph/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/testing/allocations.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/graph/testing/graphs.h"
#include "trainer/graph/testing/trainer.h"
#include "trainer/models/model.h"

namespace muster::nn {
namespace {

using testing::HasSubstr;

Graph Model(const std::string& name, const ImageShape& input, bool batch_norm, double dropout) {
  v1::ModelSpec spec;
  spec.set_name(name);
  spec.set_batch_norm(batch_norm);
  spec.set_dropout(dropout);
  return *BuildModel(spec, input, kTestClasses);
}

std::vector<TestGraph> Cases() {
  std::vector<TestGraph> cases = TestGraphs();
  cases.push_back({"small_cnn", Model("small_cnn", {12, 12, 1}, true, 0)});
  cases.push_back({"small_cnn_odd", Model("small_cnn", {9, 15, 3}, true, 0.3)});
  cases.push_back({"small_cnn_without_batch_norm", Model("small_cnn", {10, 10, 2}, false, 0)});
  cases.push_back({"mlp", Model("mlp", {7, 5, 3}, false, 0.5)});
  return cases;
}

class PlanTest : public testing::TestWithParam<TestGraph> {
 protected:
  static constexpr uint32_t kMaxBatch = 6;
  const Graph& graph() const { return GetParam().graph; }
};

TEST_P(PlanTest, MatchesTheReferenceForAnyNumberOfSamples) {
  TestTrainer trainer(graph(), {.max_batch = kMaxBatch});
  TestTrainer reference(graph(), {.max_batch = kMaxBatch, .device = &kernels::ReferenceDevice()});
  uint64_t step = 0;
  for (const uint32_t samples : {kMaxBatch, 4u, 5u, 4u, kMaxBatch}) {
    const LossResult result = trainer.Gradients(step, 3, samples, 8);
    const LossResult expected = reference.Gradients(step, 3, samples, 8);
    EXPECT_NEAR(result.loss_sum, expected.loss_sum, 1e-5 * expected.loss_sum);
    EXPECT_EQ(result.correct, expected.correct);
    ExpectClose(trainer.plan().logits(samples), reference.plan().logits(samples), 1e-5, "logits");
    for (const ParameterInfo& info : reference.plan().parameters()) {
      ExpectClose(trainer.Gradient(info), reference.Gradient(info), 2e-4, info.name);
    }
    ExpectBuffersClose(trainer, reference);
    ++step;
  }
  // Evaluation with the running statistics of training, and without dropout.
  trainer.Fill(step, 0, kMaxBatch);
  reference.Fill(step, 0, kMaxBatch);
  trainer.plan().Forward(kMaxBatch, false, {});
  reference.plan().Forward(kMaxBatch, false, {});
  ExpectClose(trainer.plan().logits(kMaxBatch), reference.plan().logits(kMaxBatch), 1e-5,
              "logits of evaluation");
}

TEST_P(PlanTest, RecomputingActivationsIsBitwiseEqual) {
  TestTrainer kept(graph(), {.max_batch = kMaxBatch});
  TestTrainer again(graph(), {.max_batch = kMaxBatch, .recompute_activations = true});
  for (uint64_t step = 0; step < 3; ++step) {
    for (TestTrainer* trainer : {&kept, &again}) {
      trainer->Gradients(step, 0, step == 1 ? 4 : kMaxBatch, kMaxBatch);
      trainer->Update();
      trainer->Fill(7, 0, kMaxBatch);
      trainer->plan().Forward(kMaxBatch, false, {});
    }
    EXPECT_EQ(std::memcmp(kept.gradients(), again.gradients(), kept.elements() * sizeof(float)), 0);
    EXPECT_THAT(kept.plan().logits(kMaxBatch),
                testing::ElementsAreArray(again.plan().logits(kMaxBatch)));
  }
}

TEST_P(PlanTest, ZeroSamplesGiveZeroGradientsAndKeepStatistics) {
  TestTrainer trainer(graph(), {.max_batch = kMaxBatch});
  trainer.Gradients(0, 0, kMaxBatch, kMaxBatch);
  std::vector<std::vector<float>> before;
  for (const ParameterInfo& info : trainer.plan().buffers()) before.push_back(trainer.Buffer(info));
  const LossResult result = trainer.Gradients(1, 0, 0, kMaxBatch);
  EXPECT_EQ(result.loss_sum, 0);
  EXPECT_EQ(result.correct, 0u);
  for (size_t i = 0; i < trainer.elements(); ++i) ASSERT_EQ(trainer.gradients()[i], 0.0f);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(trainer.Buffer(trainer.plan().buffers()[i]), before[i]);
  }
}

TEST_P(PlanTest, GradientsAreFinalWhenReportedReady) {
  TestTrainer expected(graph(), {.max_batch = kMaxBatch});
  expected.Gradients(0, 0, kMaxBatch, kMaxBatch);
  TestTrainer trainer(graph(), {.max_batch = kMaxBatch});
  trainer.Fill(0, 0, kMaxBatch);
  trainer.plan().Forward(kMaxBatch, true, {.seed = 9});
  trainer.plan().Loss(kMaxBatch, 0.1, 1.0f / kMaxBatch);
  size_t last = trainer.elements();
  int calls = 0;
  trainer.plan().Backward(kMaxBatch, [&](size_t offset) {
    ASSERT_LT(offset, last);
    last = offset;
    ++calls;
    ASSERT_EQ(std::memcmp(trainer.gradients() + offset, expected.gradients() + offset,
                          (trainer.elements() - offset) * sizeof(float)),
              0);
  });
  EXPECT_EQ(last, 0u);
  EXPECT_GT(calls, 1);
}

TEST_P(PlanTest, IsDeterministicAndKeepsPaddingZero) {
  TestTrainer first(graph(), {.max_batch = kMaxBatch});
  TestTrainer second(graph(), {.max_batch = kMaxBatch});
  for (uint64_t step = 0; step < 5; ++step) {
    for (TestTrainer* trainer : {&first, &second}) {
      trainer->Gradients(step, 0, step == 3 ? 4 : kMaxBatch, kMaxBatch);
      trainer->Update();
    }
  }
  EXPECT_EQ(std::memcmp(first.parameters(), second.parameters(), first.elements() * sizeof(float)),
            0);
  size_t canonical = 0;
  for (const ParameterInfo& info : first.plan().parameters()) {
    canonical += CanonicalElements(info);
    EXPECT_EQ(info.offset % 16, 0u);
  }
  const size_t zeros = static_cast<size_t>(
      std::count(first.parameters(), first.parameters() + first.elements(), 0.0f));
  EXPECT_GE(zeros, first.elements() - canonical);
}

TEST_P(PlanTest, StepsDoNotAllocate) {
  class OneRank : public StatisticsReducer {
   public:
    void Sum(double*, size_t) override {}
    void Sum(float*, size_t) override {}
  } one_rank;
  TestTrainer trainer(
      graph(),
      {.max_batch = kMaxBatch, .synchronize_batch_norm = true, .recompute_activations = true});
  trainer.plan().set_statistics_reducer(&one_rank);
  const std::function<void(size_t)> ready = [](size_t) {};
  const auto step = [&](uint32_t samples) {
    trainer.plan().Forward(samples, true, {});
    trainer.plan().Loss(samples, 0.1, 1);
    trainer.plan().Backward(samples, ready);
    trainer.Update();
    trainer.plan().Forward(samples, false, {});
  };
  trainer.Fill(0, 0, kMaxBatch);
  step(kMaxBatch);
  step(5);
  const int64_t before = Allocations();
  step(kMaxBatch);
  step(5);
  step(0);
  EXPECT_EQ(Allocations(), before);
}

// A caller reduces gradients in place as soon as they are reported ready: backward must not access
// them afterwards.
TEST_P(PlanTest, DoesNotTouchGradientsAfterReportingThem) {
  TestTrainer undisturbed(graph(), {.max_batch = kMaxBatch});
  undisturbed.Gradients(0, 0, kMaxBatch, kMaxBatch);
  TestTrainer trainer(graph(), {.max_batch = kMaxBatch});
  trainer.Fill(0, 0, kMaxBatch);
  trainer.plan().Forward(kMaxBatch, true, {.seed = 9});
  trainer.plan().Loss(kMaxBatch, 0.1, 1.0f / static_cast<float>(kMaxBatch));
  std::vector<float> taken(trainer.elements());
  size_t end = trainer.elements();
  trainer.plan().Backward(kMaxBatch, [&](size_t offset) {
    ASSERT_LE(offset, end);
    float* const gradients = trainer.gradients();
    std::copy(gradients + offset, gradients + end, taken.begin() + offset);
    std::fill(gradients + offset, gradients + end, std::nanf(""));
    end = offset;
  });
  EXPECT_EQ(end, 0u);
  for (const ParameterInfo& info : trainer.plan().parameters()) {
    EXPECT_EQ(trainer.Exported(taken.data(), info), undisturbed.Gradient(info)) << info.name;
  }
}

TEST_P(PlanTest, ExportReturnsImportedValues) {
  TestTrainer trainer(graph(), {.max_batch = kMaxBatch});
  std::mt19937 random(1);
  const auto check = [&](const ParameterInfo& info) {
    std::vector<float> values(CanonicalElements(info));
    for (float& value : values) value = static_cast<float>(random());
    ASSERT_TRUE(trainer.plan().Import(info, values).ok());
    std::vector<float> exported(values.size());
    ASSERT_TRUE(trainer.plan().Export(info, absl::MakeSpan(exported)).ok());
    EXPECT_EQ(exported, values) << info.name;
    values.push_back(0);
    EXPECT_EQ(trainer.plan().Import(info, values).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(trainer.plan().Export(info, absl::MakeSpan(values)).code(),
              absl::StatusCode::kInvalidArgument);
  };
  for (const ParameterInfo& info : trainer.plan().parameters()) check(info);
  for (const ParameterInfo& info : trainer.plan().buffers()) check(info);
  ParameterInfo unknown;
  unknown.name = "unknown";
  EXPECT_EQ(trainer.plan().Import(unknown, {}).code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Graphs, PlanTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// Compares 1 rank with 50 samples and 4 ranks with 12 or 13 samples each.
void ExpectSharingKeepsLosses(const Graph& graph, int steps) {
  constexpr uint32_t kBatch = 50, kRanks = 4;
  TestTrainer alone(graph, {.max_batch = kBatch});
  std::vector<std::unique_ptr<TestTrainer>> ranks;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<TestTrainer>(
        graph, CompileOptions{.max_batch = (kBatch + kRanks - 1) / kRanks}));
  }
  for (int step = 0; step < steps; ++step) {
    const double loss = alone.Gradients(step, 0, kBatch, kBatch).loss_sum;
    alone.Update();
    double shared_loss = 0;
    std::vector<float> sum(alone.elements(), 0.0f);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const uint32_t begin = rank * kBatch / kRanks;
      const uint32_t end = (rank + 1) * kBatch / kRanks;
      shared_loss += ranks[rank]->Gradients(step, begin, end - begin, kBatch).loss_sum;
      ASSERT_EQ(ranks[rank]->elements(), sum.size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += ranks[rank]->gradients()[i];
    }
    for (const auto& rank : ranks) {
      std::copy(sum.begin(), sum.end(), rank->gradients());
      rank->Update();
    }
    ASSERT_NEAR(shared_loss, loss, 1e-4 * loss) << "step " << step;
  }
}

TEST(PlanSharingTest, DropoutIsIndependentOfTheNumberOfRanks) {
  ExpectSharingKeepsLosses(Model("small_cnn", {8, 8, 1}, false, 0.3), 50);
}

TEST(PlanSharingTest, StochasticDepthIsIndependentOfTheNumberOfRanks) {
  ExpectSharingKeepsLosses(StochasticBranches(), 30);
}

// In files a linear layer's columns are channel-first, as in PyTorch.
TEST(PlanLayoutTest, ColumnsOfTheFirstLinearAreChannelFirst) {
  Graph graph{{2, 3, 4}, {}};
  const NodeId flatten = graph.Add("0", Flatten{}, {kInput});
  graph.Add("1", Linear{1}, {flatten});
  TestTrainer trainer(graph, {.max_batch = 1});
  const ParameterInfo& weight = trainer.plan().parameters()[0];
  for (int i = 0; i < 24; ++i) trainer.plan().input()[i] = static_cast<float>(i);
  ASSERT_TRUE(trainer.plan().Import(trainer.plan().parameters()[1], std::vector<float>{0}).ok());
  for (int c = 0; c < 4; ++c) {
    for (int h = 0; h < 2; ++h) {
      for (int w = 0; w < 3; ++w) {
        std::vector<float> one_hot(24, 0.0f);
        one_hot[(c * 2 + h) * 3 + w] = 1;
        ASSERT_TRUE(trainer.plan().Import(weight, one_hot).ok());
        trainer.plan().Forward(1, false, {});
        EXPECT_EQ(trainer.plan().logits(1)[0], static_cast<float>((h * 3 + w) * 4 + c));
      }
    }
  }
}

TEST(PlanCompileTest, DigestsDistinguishLayouts) {
  const auto digest = [](const Graph& of, const CompileOptions& options) {
    return (*Compile(of, options))->layout_digest();
  };
  for (const Graph& graph : {Model("small_cnn", {12, 12, 1}, true, 0), SmallResNet()}) {
    EXPECT_EQ(digest(graph, {.max_batch = 4}), digest(graph, {.max_batch = 4}));
    EXPECT_NE(digest(graph, {.max_batch = 4}),
              digest(graph, {.max_batch = 4, .device = &kernels::ReferenceDevice()}));
  }
  EXPECT_NE(digest(Model("small_cnn", {12, 12, 1}, true, 0), {.max_batch = 4}),
            digest(Model("small_cnn", {12, 12, 1}, false, 0), {.max_batch = 4}));
  // Stochastic depth has no parameters: it may be added or removed between runs.
  EXPECT_EQ(digest(SmallResNet(), {.max_batch = 4}), digest(SmallResNet(0.5), {.max_batch = 4}));
}

TEST(PlanCompileTest, InferenceNeedsLessMemory) {
  const Graph graph = Model("small_cnn", {28, 28, 1}, true, 0);
  const auto training = Compile(graph, {.max_batch = 16});
  const auto inference = Compile(graph, {.max_batch = 16, .training = false});
  ASSERT_TRUE(training.ok() && inference.ok());
  EXPECT_LT((*inference)->arena_bytes(), (*training)->arena_bytes());
}

TEST(PlanCompileTest, RecomputingActivationsNeedsLessMemory) {
  for (const Graph& graph : {SmallResNet(0.5), SmallMobileNet()}) {
    const auto kept = Compile(graph, {.max_batch = 16});
    const auto again = Compile(graph, {.max_batch = 16, .recompute_activations = true});
    ASSERT_TRUE(kept.ok() && again.ok());
    EXPECT_LT((*again)->arena_bytes(), (*kept)->arena_bytes());
    size_t outputs = 0;
    for (const OperationDescription& operation : (*again)->Describe()) {
      if (operation.recomputed.rfind("output", 0) == 0) ++outputs;
    }
    // The batch norms within branches; in the resnet not that of the stem, which only a pool reads.
    EXPECT_GE(outputs, 2u);
  }
}

TEST(PlanCompileTest, RejectsInvalidOptionsAndGraphs) {
  const Graph graph = Model("small_cnn", {12, 12, 1}, true, 0);
  EXPECT_EQ(Compile(graph, {.max_batch = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  const kernels::DataType exchanged_only = kernels::DataType::kFloat64;
  for (const Precision precision :
       {Precision{.activations = exchanged_only}, Precision{.compute = exchanged_only}}) {
    EXPECT_EQ(Compile(graph, {.max_batch = 1, .precision = precision}).status().message(),
              "precision: kernels do not support float64");
  }
  EXPECT_EQ(Compile(Model("small_cnn", {9000, 9000, 1}, true, 0), {.max_batch = 4000000000u})
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  Graph pooled{{1, 1, 1}, {}};
  pooled.Add("squeeze", MaxPool2d{}, {kInput});
  EXPECT_THAT(Compile(pooled, {.max_batch = 1}).status().message(), HasSubstr("layer squeeze"));
  Graph twice{{1, 1, kTestClasses}, {}};
  const NodeId flatten = twice.Add("flatten", Flatten{}, {kInput});
  twice.Add("double", Add{}, {flatten, flatten});
  EXPECT_THAT(Compile(twice, {.max_batch = 1}).status().message(),
              HasSubstr("layer double: the two inputs of an Add must differ"));
  Graph fixed{{1, 1, kTestClasses}, {}};
  fixed.Add("flatten", Flatten{}, {kInput});
  EXPECT_THAT(Compile(fixed, {.max_batch = 1}).status().message(),
              HasSubstr("has no parameters to train"));
  EXPECT_TRUE(Compile(fixed, {.max_batch = 1, .training = false}).ok());
}

TEST(PlanDescribeTest, DescribesEachOperation) {
  const auto plan = Compile(SmallResNet(0.2), {.max_batch = 6});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<OperationDescription> operations = (*plan)->Describe();
  std::vector<std::string> kinds;
  size_t parameters = 0;
  for (const OperationDescription& operation : operations) {
    kinds.push_back(operation.kind);
    parameters += operation.parameters;
    EXPECT_EQ(operation.activation_bytes,
              6 * 4 * operation.output.height * operation.output.width * operation.output.channels);
    EXPECT_LE(operation.arena_offset + operation.activation_bytes, (*plan)->arena_bytes());
    EXPECT_EQ(operation.dtype, "float32");
    EXPECT_EQ(operation.compute_dtype, "float32");
    EXPECT_EQ(operation.input_dtypes.size(), operation.inputs.size());
    EXPECT_NE(operation.kernel, "");
  }
  EXPECT_THAT(kinds, testing::ElementsAre("conv2d", "batch_norm2d + relu", "max_pool2d", "conv2d",
                                          "batch_norm2d + relu", "conv2d",
                                          "batch_norm2d + stochastic_depth + add + relu", "conv2d",
                                          "batch_norm2d + relu", "conv2d", "conv2d", "batch_norm2d",
                                          "batch_norm2d + stochastic_depth + add + relu",
                                          "avg_pool2d", "linear"));
  size_t expected = 0;
  for (const ParameterInfo& info : (*plan)->parameters()) expected += CanonicalElements(info);
  EXPECT_EQ(parameters, expected);
  const OperationDescription& stem = operations[0];
  EXPECT_EQ(stem.name, "conv1");
  EXPECT_EQ(stem.inputs.size(), 1u);
  EXPECT_EQ(stem.output.height, 7);
  EXPECT_EQ(stem.parameters, 7u * 7 * 3 * 8);
  EXPECT_EQ(stem.forward_flops, 2 * 7 * 9 * 8 * (7 * 7 * 3));
  EXPECT_EQ(stem.evaluation, "in bn1..relu");
  EXPECT_EQ(stem.recomputed, "");
  EXPECT_EQ(operations[1].evaluation, "with conv1");
  EXPECT_EQ(operations[1].recomputed, "normalised values, activation mask");
  EXPECT_EQ(operations[6].name, "layer1.0.bn2..layer1.0.relu2");
  EXPECT_EQ(operations[6].inputs.size(), 2u);
  EXPECT_EQ(operations[6].recomputed, "normalised values");
  EXPECT_EQ(operations[6].evaluation, "with layer1.0.conv2");
  EXPECT_EQ(operations[14].evaluation, "");
}

TEST(PlanDescribeTest, ReportsLowPrecisionTypes) {
  const Precision precision = PrecisionOf(2, kernels::DataType::kBfloat16);
  const auto plan =
      Compile(SmallResNet(),
              {.max_batch = 6, .device = &kernels::ReferenceDevice(), .precision = precision});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<OperationDescription> operations = (*plan)->Describe();
  EXPECT_THAT(operations.front().input_dtypes, testing::ElementsAre("float32"));
  EXPECT_EQ(operations.front().dtype, "bfloat16");
  EXPECT_EQ(operations.front().compute_dtype, "bfloat16");
  EXPECT_EQ(operations.front().activation_bytes, 6u * 7 * 9 * 8 * 2);
  // Kernels other than those of CPUs fuse every max pooling.
  EXPECT_EQ(operations[1].kind, "batch_norm2d + relu + max_pool2d");
  EXPECT_EQ(operations[1].evaluation, "");
  EXPECT_EQ(operations[5].name, "layer1.0.bn2..layer1.0.relu2");
  EXPECT_THAT(operations[5].input_dtypes, testing::ElementsAre("bfloat16", "bfloat16"));
  EXPECT_EQ(operations[5].compute_dtype, "float32");
  EXPECT_THAT(operations.back().input_dtypes, testing::ElementsAre("bfloat16"));
  EXPECT_EQ(operations.back().dtype, "float32");
}

TEST(PlanTimeTest, CountsTheTimeOfOperationsAndLoss) {
  TestTrainer trainer(SmallResNet(), {.max_batch = 4});
  EXPECT_EQ(trainer.plan().kernel_time(), absl::ZeroDuration());
  trainer.Fill(0, 0, 4);
  const absl::Time start = absl::Now();
  trainer.plan().Forward(4, true, {});
  const absl::Duration forward = trainer.plan().kernel_time();
  EXPECT_GT(forward, absl::ZeroDuration());
  trainer.plan().Loss(4, 0, 1);
  const absl::Duration loss = trainer.plan().kernel_time();
  EXPECT_GT(loss, forward);
  trainer.plan().Backward(4, nullptr);
  EXPECT_GT(trainer.plan().kernel_time(), loss);
  EXPECT_LE(trainer.plan().kernel_time(), absl::Now() - start);
}

}  // namespace
}  // namespace muster::nn
