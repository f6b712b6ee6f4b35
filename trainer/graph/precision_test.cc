// Plans with bfloat16 or float16 products and activations.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "common/testing/allocations.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/graph/plan.h"
#include "trainer/graph/testing/graphs.h"
#include "trainer/graph/testing/trainer.h"

namespace muster::nn {
namespace {

using kernels::DataType;

constexpr uint32_t kMaxBatch = 6;

// Distance from one to the next larger number.
double Epsilon(DataType type) { return type == DataType::kBfloat16 ? 1.0 / 128 : 1.0 / 1024; }

class PrecisionTest : public testing::TestWithParam<std::tuple<TestGraph, int, DataType>> {
 protected:
  const Graph& graph() const { return std::get<0>(GetParam()).graph; }
  Precision precision() const { return PrecisionOf(std::get<1>(GetParam()), type()); }
  DataType type() const { return std::get<2>(GetParam()); }
};

// Root mean square of the difference, relative to that of the expected values.
double RelativeError(const std::vector<float>& actual, const std::vector<float>& expected) {
  double difference = 0;
  double square = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    difference += std::pow(double{actual[i]} - expected[i], 2);
    square += std::pow(double{expected[i]}, 2);
  }
  return std::sqrt(difference / std::max(square, 1e-12));
}

// The kernels add in another order than the reference, so that sums differ in their last bits; a
// sum halfway between two numbers of the low-precision type may be rounded differently. Few values
// are, by one epsilon each, and equally few decisions of a maximum or a ReLU differ, so that the
// mean error stays within some epsilons at any depth of these networks.
TEST_P(PrecisionTest, MatchesTheReference) {
  TestTrainer trainer(graph(), {.max_batch = kMaxBatch, .precision = precision()});
  TestTrainer reference(
      graph(),
      {.max_batch = kMaxBatch, .device = &kernels::ReferenceDevice(), .precision = precision()});
  const double tolerance = 2 * Epsilon(type());
  uint64_t step = 0;
  for (const uint32_t samples : {kMaxBatch, 4u}) {
    const LossResult result = trainer.Gradients(step, 3, samples, 8);
    const LossResult expected = reference.Gradients(step, 3, samples, 8);
    EXPECT_NEAR(result.loss_sum, expected.loss_sum, tolerance * expected.loss_sum);
    ExpectClose(trainer.plan().logits(samples), reference.plan().logits(samples), 2 * tolerance,
                "logits");
    std::vector<float> gradients;
    std::vector<float> expected_gradients;
    for (const ParameterInfo& info : reference.plan().parameters()) {
      const std::vector<float> gradient = trainer.Gradient(info);
      const std::vector<float> expected_gradient = reference.Gradient(info);
      gradients.insert(gradients.end(), gradient.begin(), gradient.end());
      expected_gradients.insert(expected_gradients.end(), expected_gradient.begin(),
                                expected_gradient.end());
    }
    EXPECT_LT(RelativeError(gradients, expected_gradients), 2 * tolerance);
    ++step;
  }
  trainer.Fill(step, 0, kMaxBatch);
  reference.Fill(step, 0, kMaxBatch);
  trainer.plan().Forward(kMaxBatch, false, {});
  reference.plan().Forward(kMaxBatch, false, {});
  ExpectClose(trainer.plan().logits(kMaxBatch), reference.plan().logits(kMaxBatch), 2 * tolerance,
              "logits of evaluation");
}

// The loss is a mean over values with independent rounding errors.
TEST_P(PrecisionTest, LossIsCloseToFloat32) {
  TestTrainer trainer(graph(), {.max_batch = kMaxBatch, .precision = precision()});
  TestTrainer float32(graph(), {.max_batch = kMaxBatch});
  const double loss = trainer.Gradients(0, 3, kMaxBatch, 8).loss_sum;
  const double expected = float32.Gradients(0, 3, kMaxBatch, 8).loss_sum;
  EXPECT_NEAR(loss, expected, 4 * Epsilon(type()) * expected);
  EXPECT_NE(loss, expected) << "nothing was rounded";
}

TEST_P(PrecisionTest, StepsDoNotAllocate) {
  TestTrainer trainer(graph(), {.max_batch = kMaxBatch, .precision = precision()});
  const std::function<void(size_t)> ready = [](size_t) {};
  const auto step = [&](uint32_t samples) {
    trainer.plan().Forward(samples, true, {});
    trainer.plan().Loss(samples, 0.1, 1);
    trainer.plan().Backward(samples, ready);
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

TEST_P(PrecisionTest, ZeroSamplesGiveZeroGradients) {
  TestTrainer trainer(graph(), {.max_batch = kMaxBatch, .precision = precision()});
  trainer.Gradients(0, 0, kMaxBatch, kMaxBatch);
  trainer.Gradients(1, 0, 0, kMaxBatch);
  for (size_t i = 0; i < trainer.elements(); ++i) ASSERT_EQ(trainer.gradients()[i], 0.0f);
}

INSTANTIATE_TEST_SUITE_P(Graphs, PrecisionTest,
                         testing::Combine(testing::ValuesIn(TestGraphs()), testing::Values(1, 2),
                                          testing::Values(DataType::kBfloat16, DataType::kFloat16)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_o" +
                                  std::to_string(std::get<1>(info.param)) + "_" +
                                  kernels::NameOf(std::get<2>(info.param));
                         });

// Batch and logits, which stay float32, masks of sums and choices of pooling are only a small
// fraction.
TEST(PrecisionPlanTest, LowPrecisionActivationsHalveTheMemory) {
  const auto bytes = [](int level) {
    return (*Compile(SmallResNet(), {.max_batch = 64,
                                     .device = &kernels::ReferenceDevice(),
                                     .precision = PrecisionOf(level, DataType::kBfloat16)}))
        ->arena_bytes();
  };
  EXPECT_EQ(bytes(1), bytes(0));
  EXPECT_LT(bytes(2), 0.65 * static_cast<double>(bytes(0)));
  EXPECT_EQ(bytes(3), bytes(2));
}

// Parameters are always float32: the digest distinguishes layouts, not precisions.
TEST(PrecisionPlanTest, EqualLayoutsHaveEqualDigests) {
  const auto digest = [](int level) {
    return (*Compile(SmallResNet(), {.max_batch = 4,
                                     .device = &kernels::ReferenceDevice(),
                                     .precision = PrecisionOf(level, DataType::kFloat16)}))
        ->layout_digest();
  };
  EXPECT_EQ(digest(1), digest(0));
  EXPECT_EQ(digest(2), digest(0));
}

}  // namespace
}  // namespace muster::nn
