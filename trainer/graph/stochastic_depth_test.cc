#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/graph/compiled_plan.h"
#include "trainer/graph/testing/graphs.h"
#include "trainer/graph/testing/trainer.h"

namespace muster::nn {
namespace {

constexpr uint32_t kSamples = 5;
constexpr double kProbability = 0.4;

bool InBranch(const std::string& name, const std::string& block) {
  return name.rfind(block, 0) == 0 && name.find("downsample") == std::string::npos;
}

bool AllZero(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
}

// Whether the step dropped the block: all or none of its parameters' gradients are zero.
bool Dropped(TestTrainer& trainer, const std::string& block) {
  int zero = 0;
  int total = 0;
  for (const ParameterInfo& info : trainer.plan().parameters()) {
    if (!InBranch(info.name, block)) continue;
    ++total;
    if (AllZero(trainer.Gradient(info))) ++zero;
  }
  EXPECT_TRUE(zero == 0 || zero == total) << zero << " of " << total;
  return zero == total;
}

TEST(StochasticDepthTest, DroppedBranchGetsNoGradientAndKeepsItsStatistics) {
  TestTrainer trainer(SmallResNet(kProbability), {.max_batch = kSamples});
  int dropped = 0;
  constexpr int kSteps = 40;
  for (uint64_t step = 0; step < kSteps; ++step) {
    std::vector<std::vector<float>> before;
    for (const ParameterInfo& info : trainer.plan().buffers())
      before.push_back(trainer.Buffer(info));
    std::fill_n(trainer.gradients(), trainer.elements(), std::nanf(""));
    trainer.Gradients(step, 0, kSamples, kSamples);
    for (const std::string block : {"layer1.0", "layer2.0"}) {
      const bool block_dropped = Dropped(trainer, block);
      dropped += block_dropped ? 1 : 0;
      for (size_t i = 0; i < before.size(); ++i) {
        const ParameterInfo& info = trainer.plan().buffers()[i];
        if (!InBranch(info.name, block)) continue;
        EXPECT_EQ(trainer.Buffer(info) == before[i], block_dropped) << info.name;
      }
    }
    // Layers outside the branches always get a gradient.
    EXPECT_FALSE(AllZero(trainer.Gradient(trainer.Info("conv1.weight"))));
    EXPECT_FALSE(AllZero(trainer.Gradient(trainer.Info("layer2.0.downsample.0.weight"))));
  }
  EXPECT_NEAR(dropped, 2 * kSteps * kProbability, 3 * std::sqrt(2 * kSteps * 0.24));
}

TEST(StochasticDepthTest, AllRanksDropTheSameBranches) {
  TestTrainer all(SmallResNet(kProbability), {.max_batch = kSamples});
  TestTrainer share(SmallResNet(kProbability), {.max_batch = 2});
  bool different = false;
  for (uint64_t step = 0; step < 20; ++step) {
    all.Gradients(step, 0, kSamples, kSamples);
    share.Gradients(step, 3, 2, kSamples);
    const bool first = Dropped(all, "layer1.0");
    const bool second = Dropped(all, "layer2.0");
    EXPECT_EQ(Dropped(share, "layer1.0"), first) << step;
    EXPECT_EQ(Dropped(share, "layer2.0"), second) << step;
    different = different || first != second;
  }
  EXPECT_TRUE(different) << "blocks are dropped independently";
}

// Averaged over many steps, a branch has the same weight as in evaluation.
TEST(StochasticDepthTest, PreservesTheExpectation) {
  Graph graph{{1, 1, 3}, {}};
  const NodeId flat = graph.Add("flatten", Flatten{}, {kInput});
  const NodeId shortcut = graph.Add("shortcut", Linear{kTestClasses}, {flat});
  const NodeId branch = graph.Add("branch", Linear{kTestClasses}, {flat});
  const NodeId drop = graph.Add("drop", StochasticDepth{0.25}, {branch});
  graph.Add("add", Add{}, {drop, shortcut});
  TestTrainer trainer(graph, {.max_batch = 2});
  trainer.Fill(0, 0, 2);
  trainer.plan().Forward(2, false, {});
  const std::vector<float> evaluated(trainer.plan().logits(2).begin(),
                                     trainer.plan().logits(2).end());
  constexpr int kSteps = 4000;
  std::vector<double> mean(evaluated.size());
  for (uint64_t step = 0; step < kSteps; ++step) {
    trainer.plan().Forward(2, true, {.seed = 1, .step = step});
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += trainer.plan().logits(2)[i] / kSteps;
  }
  for (size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(mean[i], evaluated[i], 0.03);
}

TEST(StochasticDepthTest, ReportsGradientsInOrderWhateverIsDropped) {
  TestTrainer trainer(SmallResNet(kProbability), {.max_batch = kSamples});
  TestTrainer expected(SmallResNet(kProbability), {.max_batch = kSamples});
  std::vector<size_t> offsets;
  for (uint64_t step = 0; step < 10; ++step) {
    expected.Gradients(step, 0, kSamples, kSamples);
    trainer.Fill(step, 0, kSamples);
    trainer.plan().Forward(kSamples, true, {.seed = 9, .step = step});
    trainer.plan().Loss(kSamples, 0.1, 1.0f / kSamples);
    std::vector<size_t> called;
    trainer.plan().Backward(kSamples, [&](size_t offset) {
      called.push_back(offset);
      EXPECT_EQ(std::memcmp(trainer.gradients() + offset, expected.gradients() + offset,
                            (trainer.elements() - offset) * sizeof(float)),
                0);
    });
    EXPECT_TRUE(std::is_sorted(called.rbegin(), called.rend()));
    ASSERT_FALSE(called.empty());
    EXPECT_EQ(called.back(), 0u);
    if (step > 0) EXPECT_EQ(called, offsets);
    offsets = called;
  }
}

// Operations of a dropped branch do not run, except the sum's operation, which includes a batch
// norm. Evaluation runs all operations except folded ones.
TEST(StochasticDepthTest, SkipsOperationsOfADroppedBranch) {
  const Graph graph = SmallResNet(kProbability);
  auto plan = CompiledPlan::Make(graph, {.max_batch = kSamples});
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<float> parameters((*plan)->parameter_elements() + 16);
  std::vector<float> gradients(parameters.size());
  std::vector<float> buffers((*plan)->buffer_elements() + 16);
  const auto aligned = [](std::vector<float>& values) {
    void* at = values.data();
    size_t bytes = values.size() * sizeof(float);
    return static_cast<float*>(std::align(64, 64, at, bytes));
  };
  (*plan)->Bind(aligned(parameters), aligned(gradients), aligned(buffers));
  (*plan)->Initialize(1);
  size_t ran = 0;
  (*plan)->Observe([&](const Operation& operation, const char* pass, bool done) {
    if (done && std::strcmp(pass, "forward") == 0) ++ran;
  });
  const size_t operations = (*plan)->operations().size();
  size_t fewest = operations;
  for (uint64_t step = 0; step < 20; ++step) {
    ran = 0;
    (*plan)->Forward(kSamples, true, {.seed = 2, .step = step});
    fewest = std::min(fewest, ran);
    EXPECT_THAT(ran, testing::AnyOf(operations, operations - 3, operations - 6));
  }
  EXPECT_EQ(fewest, operations - 6);
  ran = 0;
  (*plan)->Forward(kSamples, false, {});
  const auto folded =
      std::count_if((*plan)->operations().begin(), (*plan)->operations().end(),
                    [](const auto& operation) { return operation->evaluated_by() != nullptr; });
  EXPECT_EQ(folded, 6);
  EXPECT_EQ(ran, operations - folded);
}

}  // namespace
}  // namespace muster::nn
